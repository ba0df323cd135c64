"""Which runs lie in a folder that is no run itself, for messages that ask for one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.runtime.record.rundir import with_stages

from trinity_lab.sweep_files import read_sweep

if TYPE_CHECKING:
    from pathlib import Path

_RECORDS = ("run.json", "bench.json")
_MOST_NAMED = 6


def holds_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, or of a run with stages."""
    last = with_stages(folder)[-1]
    return any((last / name).exists() for name in _RECORDS)


def runs_inside(folder: Path) -> str:
    """Return a sentence that names the runs in a folder, or of a sweep; "": there are none."""
    sweep = read_sweep(folder)
    found = [one for one in folder.iterdir() if one.is_dir()] if folder.is_dir() else []
    runs = sorted(filter(holds_run, sweep.directories if sweep else found))
    if not runs:
        return ""
    told = ", ".join(map(str, runs[:_MOST_NAMED]))
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return f" It has the runs {told}{more}. Name those that you mean."
