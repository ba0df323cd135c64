"""Runs of a fixed seed are scheduled as they were when they were recorded.

``recorded_runs/`` holds the settings of each run (``run.yaml``, and beside it ``cases.yaml``) and
what was recorded of it in a file of its name: which experiences each train step had, the rows of
metrics in their order with the names in each, the numbers in them that the schedule decides, the
checkpoints with the experiences that waited in them, and what ``run.json`` says. Nothing that
another processor computes otherwise is recorded; ``scripts/compare_runs.py`` compares that too,
for two versions of the sources on one machine.

A recording changes only where a decision says that the schedule does, and a line in the changelog
with it. ``TRINITY_RECORD_RUNS=1 pytest tests/e2e/test_recorded_runs.py`` then writes all files
anew, from the runs with ``--local``; review the difference line by line.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity.runtime.record.history import read_history

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).with_name("recorded_runs")
CASES = yaml.safe_load((RECORDED / "cases.yaml").read_text())
SCHEDULED = (
    "sync/model_version", "sample/model_version/min", "sample/model_version/max", "age/max",
    "buffer/uses", "buffer/reused", "rollout/num_experiences",
)  # fmt: skip
OF_THE_RUN = (
    "status", "mode", "guarantee", "explore_steps", "train_steps", "total_steps",
    "trained_experiences",
)  # fmt: skip
BEFORE = {"train": "explore"}  # whose experiences it trains
IN_FLIGHT = "fully_async"  # groups end at any time: what waits in a checkpoint, nobody can say


@pytest.fixture
def run(tmp_path, trinity):
    """Return a function that runs a case, and gives the folder of the run."""
    from trinity_testing.tiny import make_tiny_model

    shutil.copytree(RECORDED, tmp_path, dirs_exist_ok=True)
    make_tiny_model(tmp_path / "model", vocab=259, hidden=16, layers=1)

    def call(name, *options):
        settings = [word for one in [f"name={name}", *CASES[name]] for word in ("--set", one)]
        files = ["--config", "run.yaml", "--plugin-dir", "plugins"]
        ended = trinity("run", *options, *files, *settings)
        assert ended.code == 0, ended.stdout + ended.stderr
        return tmp_path / "runs" / "recorded" / name

    return call


def record_of(directory):
    """Return all that is recorded of a run."""
    kinds, rows = {}, []
    for row in read_metrics(directory / "monitor"):
        role, step, names = row.pop("role"), row.pop("step"), tuple(sorted(row))
        others = sum(kind.startswith(role) for kind in kinds.values())
        kind = kinds.setdefault(names, f"{role} {others + 1}")
        scheduled = {name: int(row[name]) for name in SCHEDULED if name in row}
        rows.append([kind, step, scheduled])
    status = json.loads((directory / "run.json").read_text())
    return {
        "run": {name: status[name] for name in OF_THE_RUN},
        "history": read_history(directory),
        "rows": rows,
        "names": {kind: list(names) for names, kind in kinds.items()},
        "checkpoints": {
            one.path.name: None
            if directory.name == IN_FLIGHT
            else [experience.eid.uid for experience in one.read_experiences()]
            for one in CheckpointStore(directory).all()
        },
    }


def in_lines(record):
    """Return a record as json that shows a difference in few lines."""
    parts = []
    for name, value in record.items():
        if isinstance(value, list):
            lines = ",\n".join(f"  {json.dumps(one)}" for one in value)
            parts.append(f'"{name}": [\n{lines}\n ]')
        else:
            lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            parts.append(f'"{name}": {{\n{lines}\n }}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_scheduled_as_it_was_recorded(run, name) -> None:
    if name in BEFORE:
        run(BEFORE[name], "--local")
    record = record_of(run(name, "--local"))
    file = RECORDED / f"{name}.json"
    if os.environ.get("TRINITY_RECORD_RUNS") == "1":
        file.write_text(in_lines(record))

    recorded = json.loads(file.read_text())
    for part in recorded:
        assert record[part] == recorded[part], part


@pytest.mark.ray
@pytest.mark.parametrize(
    "name", ["fixed_ahead", "explorer_driven", "trainer_driven", "fully_async"]
)
def test_over_ray_each_train_step_has_the_recorded_experiences(run, ray_cluster, name) -> None:
    record = record_of(run(name))

    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    assert record["history"] == recorded["history"]
    assert record["run"] == recorded["run"]
    assert record["checkpoints"].keys() == recorded["checkpoints"].keys()
    if record["run"]["guarantee"] == "same numbers":
        assert values_of(record, "trainer") == values_of(recorded, "trainer")
        assert values_of(record, "synchronizer") == values_of(recorded, "synchronizer")


def values_of(record, role):
    """Return the numbers that the schedule decides, of all rows of a role."""
    return [row[1:] for row in record["rows"] if row[0].startswith(role)]
