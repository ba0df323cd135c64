"""What the sources of a run were: the git commit of each folder, and what is not committed.

RUN/provenance.jsonl          a line for each start
RUN/provenance/<digest>.diff  what differs from the commit, once for equal contents
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.secrets import masked
from trinity.monitor.jsonl import append_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.runtime.parts import RunInfo

FILE, FOLDER = "provenance.jsonl", "provenance"
_MOST_S = 10.0  # of a call of git
_MOST_BYTES = 1_000_000  # of a diff
_NUM_NAMED = 50  # untracked files
_WORKING = "working folder"
#: A clone's own settings name programs that git would start.
_NO_PROGRAMS = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]

logger = logging.getLogger("trinity.lab")


def keep_provenance(run: RunInfo) -> None:
    """Write where the sources of a start stand; never raises.

    Args:
        run: whose working folder and editable plugins are looked at. Folders without git are left
            out.
    """
    try:
        clones: dict[Path, list[str]] = {}
        for name, folder in _folders(run):
            top = _top_of(folder)
            if top is not None:
                clones.setdefault(top, []).append(name)
        sources = [_source(top, names, run.directory) for top, names in clones.items()]
        if sources:
            line = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "sources": sources}
            append_whole(run.directory / FILE, (json.dumps(line) + "\n").encode())
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logger.info("where the sources of this run stand is not kept: %s", error)


def _folders(run: RunInfo) -> Iterator[tuple[str, Path]]:
    """Give the working folder, that of the file, and the folder of each editable plugin."""
    if shutil.which("git") is None:
        return
    yield _WORKING, Path.cwd()
    yield "configuration", Path(run.config.folder)
    try:
        plugins = json.loads((run.directory / "plugins.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for plugin in plugins:
        if plugin["source"] in {"editable", "plugin-dir"} and plugin["path"]:
            yield plugin["distribution"] or plugin["plugin"], Path(plugin["path"])


def _top_of(folder: Path) -> Path | None:
    """Return the top folder of the clone that a folder lies in; None: it lies in none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), None)


def _source(top: Path, names: list[str], directory: Path) -> dict[str, Any]:  # Any: json
    commit = _git(top, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    shown = "--no-ext-diff", "--no-textconv", "--no-color"
    diff = _git(top, "diff", *shown, commit, "--") if commit else ""
    listed = _git(top, "ls-files", "--others", "--exclude-standard")
    untracked = listed.splitlines()
    return {
        "of": list(dict.fromkeys(names)),
        "folder": str(top),
        "commit": commit or None,
        "is_dirty": bool(diff or untracked),
        "diff": _kept(diff, directory) if diff else None,
        "untracked": untracked[:_NUM_NAMED],
        "num_untracked": len(untracked),
    }


def _kept(diff: str, directory: Path) -> str:
    """Write a diff, secrets masked, and return its path below the run directory."""
    text = masked(diff)
    if len(text) > _MOST_BYTES:
        text = f"{text[:_MOST_BYTES]}\n... {len(text) - _MOST_BYTES} characters are left out\n"
    name = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = directory / FOLDER / f"{name}.diff"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path.relative_to(directory))


def _git(folder: Path, *arguments: str) -> str:
    """Return what git says; empty where it fails."""
    ended = subprocess.run(
        ["git", "--no-optional-locks", *_NO_PROGRAMS, *arguments],
        cwd=folder,
        env={**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
        timeout=_MOST_S,
    )
    return ended.stdout if ended.returncode == 0 else ""
