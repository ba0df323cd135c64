"""Runs of a fixed seed are scheduled as they were when they were recorded.

``recorded_runs/`` holds the settings of each run (``run.yaml``, and beside it ``cases.yaml``) and
what was recorded of it in a file of its name: which experiences each train step had, the rows of
metrics in their order with the names in each, the numbers in them that the schedule decides, the
checkpoints with the experiences that waited in them, and what ``run.json`` says. Nothing that
another processor computes otherwise is recorded; ``scripts/compare_runs.py`` compares that too,
for two versions of the sources on one machine.

When a recording may change, and how: ``recording.py``.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import yaml
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.checkpoint import CheckpointStore
from trinity_testing.history import read_history

sys.path.insert(0, str(Path(__file__).parent))
from recording import compare, read, status_of, stored_beside

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).with_name("recorded_runs")
CASES = yaml.safe_load((RECORDED / "cases.yaml").read_text())
SCHEDULED = (
    "sync/model_version", "sample/model_version/min", "sample/model_version/max", "age/max",
    "buffer/uses", "buffer/reused", "rollout/num_experiences",
)  # fmt: skip
BEFORE = {"train": "explore"}  # whose experiences it trains
SOME = ("fixed_ahead", "explorer_driven", "train", "fully_async")  # one of each kind, quick
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
    return {
        "run": status_of(directory),
        "history": read_history(directory),
        "rows": rows,
        "names": {kind: list(names) for names, kind in kinds.items()},
        "checkpoints": {
            one.path.name: None
            if directory.name == IN_FLIGHT
            else [experience.eid.uid for experience in one.read_experiences()]
            for one in CheckpointStore(directory).all()
        },
        "stored": stored_beside(directory),
    }


@pytest.mark.parametrize(
    "name",
    [name if name in SOME else pytest.param(name, marks=pytest.mark.acceptance) for name in CASES],
)
def test_a_run_is_scheduled_as_it_was_recorded(run, name) -> None:
    if name in BEFORE:
        run(BEFORE[name], "--local")
    compare(record_of(run(name, "--local")), RECORDED / f"{name}.json")


@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("name", "most_off_policy_steps"),  # a rollout step leaves 8 experiences, a batch has 6
    [
        # 3 batches of a round of two steps, 2 of the step ahead, less one
        ("fixed_ahead", 4),
        # 8 wait at the question, 16 of two steps: (8 + 16 - 1) // 6
        ("explorer_driven", 3),
        # 8 wait, 8 of the step, and a step without sync: 15 // 6 + 1
        ("trainer_driven", 3),
        # 4 groups, window 1, 2 in a batch: (4 + 1 - 2) // 2
        ("fully_async", 1),
    ],
)
def test_over_ray_each_train_step_has_the_recorded_experiences(
    run, ray_cluster, name, most_off_policy_steps
) -> None:
    record = record_of(run(name))

    recorded = read(RECORDED / f"{name}.json")
    assert record["history"] == recorded["history"]
    assert record["run"] == recorded["run"]
    assert record["checkpoints"].keys() == recorded["checkpoints"].keys()
    for step, values in values_of(record, "trainer"):
        assert step - 1 - values["sample/model_version/min"] <= most_off_policy_steps
    if record["run"]["guarantee"] == "same numbers":
        assert values_of(record, "trainer") == values_of(recorded, "trainer")
        assert values_of(record, "synchronizer") == values_of(recorded, "synchronizer")


def values_of(record, role):
    """Return the numbers that the schedule decides, of all rows of a role."""
    return [row[1:] for row in record["rows"] if row[0].startswith(role)]
