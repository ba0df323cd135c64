"""Compare what a run did with what was recorded of it, or record it anew.

``recorded_runs/`` and ``frozen_checkpoints/`` hold one json file for each run that is compared. A
file changes only where a decision says that the schedule does, and a line in the changelog with it;
``TRINITY_RECORD_RUNS=1`` then makes the tests write their files, and the difference is reviewed
line by line. Over Ray nothing is recorded: what is compared there was recorded with ``--local``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trinity.common.experience import Experience

OF_THE_RUN = (
    "status", "mode", "guarantee", "explore_steps", "train_steps", "total_steps",
    "trained_experiences",
)  # fmt: skip


def compare(record: dict[str, Any], file: Path) -> None:
    """Hold that a record is what stands in a file."""
    if os.environ.get("TRINITY_RECORD_RUNS") == "1":
        file.write_text(in_lines(record), encoding="utf-8")
    recorded = read(file)
    assert record.keys() == recorded.keys()
    for part in recorded:
        assert record[part] == recorded[part], part


def read(file: Path) -> dict[str, Any]:
    """Return what was recorded."""
    return json.loads(file.read_text(encoding="utf-8"))


def status_of(directory: Path) -> dict[str, Any]:
    """Return what is compared of ``run.json``."""
    status = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    return {name: status[name] for name in OF_THE_RUN}


def stored_beside(directory: Path) -> list[str]:
    """Return whose experiences lie in the file of a run without a trainer; empty: there is none."""
    file = directory.parents[2] / "stored.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Experience.from_dict(json.loads(line)).eid.uid for line in lines]


def in_lines(record: dict[str, Any]) -> str:
    """Return a record as json that shows a difference in few lines."""
    parts = []
    for name, value in record.items():
        if value and isinstance(value, list) and isinstance(value[0], list):
            lines = ",\n".join(f"  {json.dumps(one)}" for one in value)
            parts.append(f'"{name}": [\n{lines}\n ]')
        elif value and isinstance(value, dict):
            lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f'"{name}": {{\n{lines}\n }}')
        else:
            parts.append(f'"{name}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"
