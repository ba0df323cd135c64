"""Settings of the docs build: Markdown pages, a calm theme, no link to nowhere, no network."""

import sys
from pathlib import Path

# autodoc rewrites the annotations of pydantic's BaseModel; a model made after that fails
import trinity.runtime.run  # noqa: F401

sys.path.append(str(Path(__file__).parent))  # mathml.py

project = "Trinity"
author = "The Trinity authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_build", "reference/*.in.md", "reference/algorithms/*.in.md"]
html_theme = "furo"
html_title = "Trinity"
highlight_language = "none"  # a picture in a docstring is no Python
html_math_renderer = "mathml"
myst_heading_anchors = 4  # a link may name a heading: page.md#heading
myst_enable_extensions = ["colon_fence", "dollarmath"]
suppress_warnings = ["misc.highlighting_failure"]  # a sketch of a config is not always valid YAML

autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # an attribute is named once
napoleon_custom_sections = [("Class attributes", "Attributes")]
