"""Runs that an earlier version broke off, in every style and mode, go on to their end.

Each archive in ``frozen_checkpoints/`` is a folder with a configuration and the directory of a run
as it was when a checkpoint had been written, or the process was killed; ``record.py`` there says
how they were made. Beside it lies what was recorded of it: where the checkpoint stands, and what
the version that wrote it trained when it went on with ``--local``. When the latter may be recorded
anew: ``recording.py``. The archives stay as they are.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from trinity.monitor.jsonl import read_metrics
from trinity_testing.history import read_history

sys.path.insert(0, str(Path(__file__).parent))
from recording import compare, read, status_of, stored_beside

pytestmark = pytest.mark.slow

FROZEN = Path(__file__).with_name("frozen_checkpoints")
NAMES = sorted(path.name.partition(".")[0] for path in FROZEN.glob("*.tar.xz"))
BY_TIME = {"fully_async_ledger"}  # its window lets a group that is ready overtake others
SOME = {"explore", "fixed_overlapped", "fully_async_ledger"}  # one of each kind of storage
OVER_RAY = ["fully_async", "fixed_overlapped", "explorer_driven", "trainer_driven"]
MODEL = {"vocab": 259, "hidden": 8, "layers": 1, "heads": 2}


@pytest.fixture
def unpack(tmp_path):
    """Return a function that puts an archive's folder in place, and gives that of its run."""
    from trinity_testing.tiny import make_tiny_model

    def call(name):
        with tarfile.open(FROZEN / f"{name}.tar.xz") as archive:
            archive.extractall(tmp_path, filter="data")
        make_tiny_model(tmp_path / "model", **MODEL)
        return tmp_path / "runs" / "recorded" / "run"

    return call


@pytest.fixture
def go_on(trinity):
    """Return a function that goes on with a run, and gives its record."""

    def call(directory, *options, name):
        place = place_of(directory)
        files = ["--config", "run.yaml", "--plugin-dir", "plugins"]
        ended = trinity("run", *options, *files)
        assert ended.code == 0, ended.stdout + ended.stderr
        assert "going on after" in ended.stdout
        is_by_time = name in BY_TIME
        return {
            "place": place,
            "run": status_of(directory),
            "history": [sorted(eids_of(directory))] if is_by_time else read_history(directory),
            "versions": None if is_by_time else versions_of(directory),
            "stored": stored_beside(directory),
        }

    return call


def place_of(directory):
    """Return where the newest checkpoint stands, as its version wrote it."""
    newest = directory / "latest_checkpointed_iteration.txt"
    folder = directory / f"global_step_{newest.read_text().strip()}" if newest.exists() else None
    file = folder / "state.json" if folder is not None else directory / "explorer_state.json"
    state = json.loads(file.read_text())
    counts = ("explored", "trained", "num_due", "written", "synced", "pulled", "evaluated")
    place = {name: state["progress"][name] for name in counts}
    if "engines" in state:
        place["engines"] = state["engines"]["version"]
    flight = state["explorer"].get("flight", {})
    place |= {name: flight[name] for name in ("num_begun", "waiting", "taken") if flight}
    place |= {"running": [number for number, _ in flight["running"]]} if flight else {}
    return place


def eids_of(directory):
    return [eid for step in read_history(directory) for eid in step]


def versions_of(directory):
    """Return of each train step between which versions its experiences were made."""
    ends = ("sample/model_version/min", "sample/model_version/max")
    rows = read_metrics(directory / "monitor")
    return [[int(row[end]) for end in ends] for row in rows if row["role"] == "trainer"]


@pytest.mark.parametrize(
    "name",
    [name if name in SOME else pytest.param(name, marks=pytest.mark.acceptance) for name in NAMES],
)
def test_a_run_that_was_broken_off_goes_on_as_it_did(unpack, go_on, name) -> None:
    record = go_on(unpack(name), "--local", name=name)

    compare(record, FROZEN / f"{name}.json")


@pytest.mark.ray
@pytest.mark.acceptance
@pytest.mark.parametrize("name", OVER_RAY)
def test_over_ray_it_trains_the_same_experiences(unpack, go_on, ray_cluster, name) -> None:
    record = go_on(unpack(name), name=name)

    recorded = read(FROZEN / f"{name}.json")
    assert record["history"] == recorded["history"]
    assert record["run"] == recorded["run"]
    if record["run"]["guarantee"] == "same numbers":
        assert record["versions"] == recorded["versions"]


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"replay"}))
def test_each_experience_was_to_be_trained_once(name) -> None:
    recorded = read(FROZEN / f"{name}.json")
    eids = [eid for step in recorded["history"] for eid in step]
    stored = recorded["stored"]

    assert max(Counter(eids).values(), default=1) == 1
    assert len(eids) == recorded["run"]["trained_experiences"]
    assert max(Counter(stored).values(), default=1) == 1
    assert len(stored) == (48 if name in {"explore", "train"} else 0)


def test_a_checkpoint_of_each_kind_was_frozen() -> None:
    places = {name: read(FROZEN / f"{name}.json")["place"] for name in NAMES}

    assert sum(places["fixed_ahead"]["written"]) > 0
    assert sum(places["fixed_ledger"]["written"]) > 0
    assert 0 < places["fixed_overlapped"]["engines"] < places["fixed_overlapped"]["trained"]
    for style in ("explorer_driven", "trainer_driven"):
        assert 0 < places[style]["pulled"] < places[style]["trained"]
        assert sum(places[style]["written"]) > 0
    for name in ("fully_async", "fully_async_ledger"):
        assert all(places[name][state] for state in ("running", "waiting", "taken"))
    assert (places["explore"]["explored"], places["explore"]["trained"]) == (3, 0)
    assert (places["train"]["explored"], places["train"]["trained"]) == (0, 2)
