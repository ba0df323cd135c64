"""What is published holds no trace of the machine it was written on."""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
KINDS = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".json", ".jsonl", ".cfg", ""}
SKIPPED = {
    ".git",
    ".nox",
    ".venv",
    "dist",
    "build",
    "_build",
    "checkpoints",
    "__pycache__",
    ".hypothesis",
}
SKIPPED |= {
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    ".import_linter_cache",
    ".cache",
    "shared",
}
MACHINE_PATH = re.compile(
    r"(?<![\w.<}/])/(?:root|work|home/\w+|Users/\w+|tmp/(?:venv|brief))\b(?!\.)"
)


def test_no_text_holds_a_path_of_somebodys_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in text_files()
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
        )
        if MACHINE_PATH.search(line)
    ]

    assert found == []


def test_what_our_plugins_log_is_in_the_log_of_a_run() -> None:
    """It holds what loggers below ``trinity`` are told; others end at the terminal, or nowhere."""
    sources = [*ROOT.glob("plugins/*/src/**/*.py"), *ROOT.glob("packages/*/src/**/*.py")]
    own = [path for path in sources if "trinity-core" not in path.parts]

    found = [str(path.relative_to(ROOT)) for path in own if "Logger(__name__)" in path.read_text()]

    assert len(own) > 100
    assert found == []


def test_a_line_break_is_the_last_character_of_each_text() -> None:
    written = [path for path in text_files() if path.suffix in {".py", ".md", ".toml", ".yaml"}]
    texts = {path: path.read_bytes() for path in written}

    assert [
        str(path.relative_to(ROOT)) for path, text in texts.items() if text[-1:] not in {b"", b"\n"}
    ] == []


def text_files() -> list[Path]:
    """Return the text files of the tree, less what tools leave behind."""
    found: list[Path] = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED]
        own = [name for name in names if name not in SKIPPED]  # .git is a file in a worktree
        found += [Path(folder, name) for name in own if Path(name).suffix in KINDS]
    return [path for path in found if path.is_file()]
