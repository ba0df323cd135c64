"""Settings of the docs build: Markdown pages, a calm theme, no link to nowhere."""

project = "Trinity"
author = "The Trinity authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "reference/*.in.md", "reference/algorithms/*.in.md"]
html_theme = "furo"
html_title = "Trinity"
myst_heading_anchors = 4  # a link may name a heading: page.md#heading
myst_enable_extensions = ["colon_fence", "dollarmath"]
suppress_warnings = ["misc.highlighting_failure"]  # a sketch of a config is not always valid YAML
