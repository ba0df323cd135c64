"""Each algorithm has a page, its formulas are written down, and its example can be run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from trinity.extend import PluginManager

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/reference/algorithms"
OURS = {"trinity-core", "trinity-algorithms", "trinity-algo-opmd"}
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
ALGORITHMS = sorted(
    name for name in PAGES if name not in {"index", "parts"} and not name.endswith(".in")
)
ROWS = {
    "tasks.jsonl": {"question": "What is 1 + 1?", "answer": "2"},
    "expert.jsonl": {"messages": [{"role": "user", "content": "?"}]},
    "rows.jsonl": {"messages": [], "prompt": "?", "chosen": "a", "rejected": "b", "text": "c"},
}


def names(kind: str) -> set[str]:
    """Return the components of a kind that this repository brings."""
    manager = PluginManager.discover(env={})
    found = (manager.find(kind, name) for name in manager.names(kind))
    return {component.name for component in found if component.origin.distribution in OURS}


def test_every_algorithm_has_a_page_and_a_row_of_the_table() -> None:
    assert set(ALGORITHMS) == names("algorithm")
    assert set(re.findall(r"^\| \[(\w+)\]", PAGES["index"], re.MULTILINE)) == set(ALGORITHMS)


@pytest.mark.parametrize("kind", ["advantage_fn", "policy_loss_fn", "kl_fn"])
def test_every_part_has_a_formula(kind: str) -> None:
    sections = PAGES["parts"].split(f"### {kind}: ")[1:]
    texts = {text.split("\n", 1)[0]: text.split("### ")[0] for text in sections}

    assert texts.keys() == names(kind)
    assert {name for name, text in texts.items() if "$$" not in text} <= {"none"}


def test_every_argument_of_a_part_is_explained() -> None:
    empty = re.compile(r"^\| `\w+` \| .* \|\s*\|$", re.MULTILINE)

    assert [
        (name, empty.findall(PAGES[name])) for name in ALGORITHMS if empty.search(PAGES[name])
    ] == []


def test_a_link_leads_to_a_heading() -> None:
    link = re.compile(r"\]\((index|parts)\.md#([\w-]+)\)")
    headings = {
        page: {
            re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-")
            for line in re.findall(r"^#+ (.*)$", PAGES[page], re.MULTILINE)
        }
        for page in ("index", "parts")
    }

    assert [
        (name, page, heading)
        for name in (*ALGORITHMS, "index", "parts")
        for page, heading in link.findall(PAGES[name])
        if heading not in headings[page]
    ] == []


def test_every_example_passes_the_check_or_lacks_what_its_page_says(tmp_path: Path) -> None:
    for name, row in ROWS.items():
        (tmp_path / name).write_text(64 * (json.dumps(row) + "\n"), encoding="utf-8")
    for name in ALGORITHMS:
        example = PAGES[name].split("```yaml\n")[1].split("```")[0]
        (tmp_path / f"{name}.yaml").write_text(example, encoding="utf-8")

    files = [f"{name}.yaml" for name in ALGORITHMS]
    output = checked(files, folder=tmp_path)

    runs = {name for name in ALGORITHMS if f"{name}.yaml: ok\n" in output}
    said = {name for name in ALGORITHMS if "| runs today | yes |" in PAGES[name]}
    assert runs == said, output
    for name in set(ALGORITHMS) - said:
        (lacking,) = re.findall(r"\| runs today \| no: it lacks `(\w+)`", PAGES[name])
        (report,) = re.findall(rf"{name}\.yaml: 1 problem\n((?:  .*\n)*)", output)
        assert f"needs '{lacking}'" in report


def checked(files: list[str], *, folder: Path) -> str:
    """Return what ``trinity config check`` says of the files."""
    command = [sys.executable, "-m", "trinity", "config", "check", *files]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout
