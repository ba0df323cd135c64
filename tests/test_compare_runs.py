"""``scripts/compare_runs.py`` finds what differs between two runs, and says what must not."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "compare_runs.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compare_runs", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["compare_runs"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["compare_runs"]


@pytest.fixture
def a_run(tmp_path, script):
    """Return a function that writes a run of one step, and reads it as the script does."""

    def write(name, *, eid="1/0/0/0", loss=0.5, train_s=1.0, weight=b"\0\1\2\3", **status):
        folder = tmp_path / name
        model = folder / "global_step_1" / "actor" / "huggingface"
        model.mkdir(parents=True)
        (folder / "monitor").mkdir()
        (folder / "run.json").write_text(json.dumps({"guarantee": "same numbers"} | status))
        (folder / "history.jsonl").write_text(json.dumps({"step": 1, "eids": [eid]}) + "\n")
        row = {"actor/loss": loss, "time/train_s": train_s, "step": 1, "role": "trainer"}
        (folder / "monitor" / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        with (model / "model.safetensors").open("ab") as file:
            file.write(weight)
        return script.read_outcome(folder)

    return write


def test_runs_that_differ_in_times_alone_are_equal(script, a_run) -> None:
    assert script.differences(a_run("one"), a_run("other", train_s=9.0)) == {}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"eid": "1/0/1/0"}, "history"),
        ({"loss": 0.5000001}, "metrics"),
        ({"weight": b"\0\1\2\4"}, "weights"),
    ],
)
def test_what_differs_is_named(script, a_run, change, part) -> None:
    found = script.differences(a_run("one"), a_run("other", **change))

    assert list(found) == [part]
    assert str(next(iter(change.values())))[:7] in found[part] or part == "weights"


def test_a_step_that_one_run_lacks_is_a_difference(script, a_run) -> None:
    one = a_run("one")
    shorter = script.Outcome(guarantee="", history=[], metrics=one.metrics, weights=one.weights)

    assert script.differences(one, shorter)["history"].endswith("nothing after")


@pytest.mark.parametrize(
    ("guarantee", "in_turns", "promised"),
    [
        ("same numbers", False, {"history", "metrics", "weights"}),
        ("same order", False, {"history"}),
        ("same order", True, {"history", "metrics", "weights"}),
        ("same ledger", False, set()),
    ],
)
def test_what_must_be_equal_follows_the_promise(
    script, a_run, guarantee, in_turns, promised
) -> None:
    one = a_run("one", guarantee=guarantee)

    assert script.promised_by(one, in_turns=in_turns) == promised


@pytest.mark.acceptance
def test_sources_come_to_what_they_came_to_before() -> None:
    options = ["--execution", "local", "--case", "fixed"]
    ended = subprocess.run(
        [sys.executable, SCRIPT, ROOT, ROOT, *options],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.split(maxsplit=4) == [
        "fixed", "local", "same", "numbers", "history equal, metrics equal, weights equal\n"
    ]  # fmt: skip
