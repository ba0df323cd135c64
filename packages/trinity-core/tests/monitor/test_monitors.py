"""Monitors write what they are given."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from trinity.common.metrics import aggregate, numbers_in
from trinity.monitor.jsonl import JsonlMonitor, read_metrics
from trinity.monitor.tensorboard import TensorboardMonitor


def test_each_step_is_one_line_of_json(tmp_path) -> None:
    monitor = JsonlMonitor(directory=tmp_path, role="trainer")
    monitor.log({"actor/loss": 0.5}, step=1)
    monitor.log({"actor/loss": float("nan")}, step=2)
    monitor.close()

    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert rows == [
        {"step": 1, "role": "trainer", "actor/loss": 0.5},
        {"step": 2, "role": "trainer", "actor/loss": None},
    ]


def test_a_line_that_the_disk_does_not_take_leaves_nothing_and_names_the_file(
    tmp_path, full_beyond
) -> None:
    monitor, path = JsonlMonitor(directory=tmp_path, role="trainer"), tmp_path / "metrics.jsonl"
    monitor.log({"actor/loss": 0.5}, step=1)
    before = path.read_bytes()
    with full_beyond(len(before) + 10), pytest.raises(OSError, match="File too large") as caught:
        monitor.log({"actor/loss": 0.25}, step=2)
    assert (caught.value.filename, path.read_bytes()) == (str(path), before)

    monitor.log({"actor/loss": 0.25}, step=2)
    monitor.close()
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2]


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "role": "trainer"}\n{"step": 2, "ro')

    assert read_metrics(tmp_path, role="trainer") == [{"step": 1, "role": "trainer"}]


def test_tensorboard_reads_back_what_was_logged(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor = TensorboardMonitor(directory=tmp_path, role="trainer")
    monitor.log({"actor/loss": 0.5}, step=3)
    monitor.close()

    events = EventAccumulator(str(tmp_path / "tensorboard" / "trainer")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("actor/loss")] == [(3, 0.5)]


HOSTILE = "<script>alert(1)</script>\n# not a heading\n"


def test_tensorboard_shows_samples_as_text_that_nothing_reads_as_markup(tmp_path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monitor = TensorboardMonitor(directory=tmp_path, role="trainer")
    sample = {"eid": "1/0/2/0", "reward": 0.5, "advantage": None, "prompt": HOSTILE, "response": ""}
    monitor.log_samples([sample, sample | {"reward": 1.0}], step=3)
    monitor.close()

    events = EventAccumulator(str(tmp_path / "tensorboard" / "trainer")).Reload()
    assert events.Tags()["tensors"] == ["samples/0", "samples/1"]
    (event,) = events.Tensors("samples/0")
    text = event.tensor_proto.string_val[0].decode()
    assert event.step == 3
    assert text.splitlines()[0] == "eid 1/0/2/0, reward 0.5, advantage None"
    assert all(line.startswith("    ") for line in text.splitlines()[1:] if line)
    assert "    # not a heading" in text


def test_numbers_are_merged_to_mean_max_and_min_unless_a_suffix_chooses() -> None:
    rows = [{"reward": 1.0, "calls:sum": 2}, {"reward": 0.0, "calls:sum": 3, "text": "x"}]

    assert aggregate(rows, prefix="rollout") == {
        "rollout/reward/mean": 0.5,
        "rollout/reward/max": 1.0,
        "rollout/reward/min": 0.0,
        "rollout/calls/sum": 5.0,
    }


def test_infinities_of_both_signs_have_no_mean_and_no_sum() -> None:
    rows = [{"gap": math.inf, "debt:sum": math.inf}, {"gap": -math.inf, "debt:sum": -math.inf}]

    made = aggregate(rows, prefix="rollout")

    assert math.isnan(made["rollout/gap/mean"])
    assert math.isnan(made["rollout/debt/sum"])
    assert (made["rollout/gap/max"], made["rollout/gap/min"]) == (math.inf, -math.inf)


def test_numbers_of_any_library_are_numbers_and_nothing_else_is() -> None:
    given = {
        "bool": True,
        "int": 2,
        "numpy": np.float32(0.5),
        "one_of_numpy": np.array([3]),
        "is_numpy": np.bool_(True),
        "torch": torch.tensor(0.25, requires_grad=True),
        "within": {"a": 1.0, "b": {"c": 2}},
        7: 1.0,
        "text": "3",
        "two": torch.tensor([1.0, 2.0]),
        "none": None,
        "complex": 1j,
        "huge": 10**400,
        "empty": {},
    }

    numbers, others = numbers_in(given)

    assert numbers == {
        "bool": 1.0,
        "int": 2.0,
        "numpy": 0.5,
        "one_of_numpy": 3.0,
        "is_numpy": 1.0,
        "torch": 0.25,
        "within/a": 1.0,
        "within/b/c": 2.0,
        "7": 1.0,
    }
    assert all(type(value) is float for value in numbers.values())
    assert sorted(others) == ["complex", "huge", "none", "text", "two"]
