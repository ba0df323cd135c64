"""The documents' own page names: they exist, and links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
#: the published name, or where we keep what the document of AgentScope tells
PUBLISHED = (
    "tutorial/trinity_installation",
    "tutorial/trinity_configs",
    "tutorial/example_reasoning_basic",
    "tutorial/example_step_wise",  # 000
    "tutorial/example_multi_turn",  # 001
    "tutorial/develop_workflow",  # 002
    "tutorial/trinity_programming_guide",  # 003
    "how-to/tune-an-agentscope-agent",  # 004, which has no name but its repository's README
)
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if "_build" not in path.parts and not path.name.endswith(".in.md")
)
FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_P123_the_names_of_the_published_pages_are_pages_that_the_index_leads_to() -> None:
    trees = "\n".join(TOCTREE.findall((DOCS / "index.md").read_text(encoding="utf-8")))
    listed = {line.strip() for line in trees.splitlines()}
    globbed = {line.removesuffix("*") for line in listed if line.endswith("/*")}

    assert [name for name in PUBLISHED if not (DOCS / f"{name}.md").is_file()] == []
    assert [
        name
        for name in PUBLISHED
        if name not in listed and not any(name.startswith(folder) for folder in globbed)
    ] == []


def test_P123_every_link_within_the_docs_leads_to_a_page_and_a_heading() -> None:
    broken = {
        f"{page.relative_to(DOCS)}: {target}" for page in PAGES for target in broken_links(page)
    }

    assert broken == set()


@pytest.mark.parametrize(
    ("link", "is_broken"),
    [
        ("[a](other.md)", False),
        ("[a](other.md#two-words-a_b-c)", False),
        ("[a](#here)", False),
        ("[a](https://example.org/x.md#y)", False),
        ("[a](missing.md)", True),
        ("[a](../outside.md)", True),
        ("[a](other.md#missing)", True),
        ("[a](#missing)", True),
    ],
)
def test_P123_a_link_that_leads_nowhere_is_found(tmp_path, link: str, is_broken: bool) -> None:
    (tmp_path / "other.md").write_text("# Other\n\n## Two words: `a_b` c\n")
    (tmp_path.parent / "outside.md").write_text("# No page of these docs\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n{link}\n\n```text\n[not a link](nowhere.md)\n```\n")

    assert bool(broken_links(page, root=tmp_path)) is is_broken


def broken_links(page: Path, *, root: Path = DOCS) -> list[str]:
    """Return the links of a page to files that are not there, or to no heading of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = LINK.findall(text)
    return [f"{file}#{anchor}" for file, anchor in links if not leads(page, file, anchor, root)]


def leads(page: Path, file: str, anchor: str, root: Path) -> bool:
    """Return whether there is such a file, of the docs where it is a page, with such a heading."""
    target = (page.parent / file if file else page).resolve()
    if target.suffix != ".md":
        return target.exists()
    is_page = target.is_file() and target.is_relative_to(root.resolve())
    return is_page and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    """Return what headings and explicit targets can be linked by, as GitHub and MyST name them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))
    for heading in re.findall(r"^#{1,4} +(.+?)\s*$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        later = sum(
            name == slug or re.fullmatch(re.escape(slug) + r"-\d+", name) is not None
            for name in found
        )
        found.add(f"{slug}-{later}" if later else slug)
    return found
