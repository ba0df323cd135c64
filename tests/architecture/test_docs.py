"""What the docs show is true: pages are up to date, code runs, commands exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from trinity.extend import PluginManager, set_manager

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
REFERENCE = ROOT / "docs/reference"
GENERATED = sorted(
    str(path.relative_to(REFERENCE))
    for path in REFERENCE.rglob("*.md")
    if not path.name.endswith(".in.md")
    and path.name not in {"last-full-run.md", "promises-and-faults.md"}  # not made from the code
)
HOW_TOS = sorted((ROOT / "docs/how-to").glob("*.md"))
FENCE = re.compile(r"^(<!-- sketch.*?-->\n+)?```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


@pytest.fixture(autouse=True)
def _own_manager() -> Iterator[None]:
    before = set_manager(PluginManager.discover(env={}))
    yield
    set_manager(before)


def test_the_generated_pages_say_what_the_code_says() -> None:
    pages = generator().PAGES
    old = [name for name in GENERATED if (REFERENCE / name).read_text("utf-8") != pages[name]()]

    assert not old, f"run: nox -s docs; {old}"


@pytest.mark.parametrize("path", [ROOT / "README.md", *HOW_TOS], ids=lambda path: path.stem)
def test_the_python_of_a_page_runs_from_top_to_bottom(path: Path) -> None:
    blocks = blocks_of(path, language="python", with_sketches=False)
    namespace = {"__name__": f"docs_{path.stem.replace('-', '_')}"}

    for block in blocks:
        exec(compile(block, path.name, "exec"), namespace)


def test_python_and_yaml_of_the_pages_can_be_read() -> None:
    wrong = []
    for path in PAGES:
        try:
            for block in blocks_of(path, language="python"):
                compile(block, path.name, "exec")
            for block in blocks_of(path, language="yaml"):
                yaml.safe_load(block)
        except (SyntaxError, yaml.YAMLError) as error:
            wrong.append(f"{path.relative_to(ROOT)}: {error}")

    assert not wrong, "\n".join(wrong)


def test_every_trinity_command_of_the_pages_exists() -> None:
    reference = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    known = {words for line in reference.splitlines() if (words := command_in(line, prefix="## "))}
    used = {
        (str(path.relative_to(ROOT)), words)
        for path in PAGES
        for block in blocks_of(path, language="bash")
        for line in block.splitlines()
        if (words := command_in(line, prefix=""))
    }

    assert {(page, words) for page, words in used if not {words, words.split()[0]} & known} == set()


def test_a_link_of_a_page_leads_to_a_file() -> None:
    texts = {path: re.sub(FENCE, "", path.read_text(encoding="utf-8")) for path in PAGES}

    assert [
        f"{path.relative_to(ROOT)}: {target}"
        for path, text in texts.items()
        for target in LINK.findall(text)
        if not (path.parent / target).exists()
    ] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs/how-to").glob("add-*.md")), ids=lambda path: path.stem
)
def test_a_how_to_says_how_many_files_were_touched(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    written = {name for block in blocks_of(path, language="python") for name in FILE.findall(block)}

    assert f"You have touched {len(written)} file" in text


def test_the_how_to_lists_the_files_that_plugins_new_writes(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/write-a-plugin-in-ten-minutes.md").read_text(encoding="utf-8")
    listing = next(text for _, name, text in FENCE.findall(page) if name == "text")
    command = [sys.executable, "-m", "trinity", "plugins", "new", "brief", "--kind", "reward_fn"]

    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    folder = tmp_path / "trinity-brief"
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

    assert {line.split()[0] for line in listing.splitlines()} == written


def test_contributors_are_told_every_nox_session() -> None:
    source = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    sessions = re.findall(r"^@nox\.session\(.*\)\ndef (\w+)", source, re.MULTILINE)
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

    assert [name for name in sessions if f"| `{name}` |" not in table] == []


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")

    assert "python -m nox -s tests" in readme
    assert "python -m nox -s tests" in script.splitlines()


FILE = re.compile(r"^# (\S+\.\w+)$", re.MULTILINE)  # a block that is a file starts with its name


def blocks_of(path: Path, *, language: str, with_sketches: bool = True) -> list[str]:
    """Return the fenced blocks of one language; a sketch says so in a comment above it."""
    found = FENCE.findall(path.read_text(encoding="utf-8"))
    return [text for mark, name, text in found if name == language and (with_sketches or not mark)]


def command_in(line: str, *, prefix: str) -> str:
    """Return the words of a trinity command up to its first option or argument; two at most."""
    match = re.match(re.escape(prefix) + r"trinity ([a-z-]+(?: [a-z-]+)?)\b", line)
    return match.group(1) if match else ""


def generator() -> ModuleType:
    """Return docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
