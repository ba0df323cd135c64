"""What the rooms noted of a step adds up to the step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trinity
from trinity_debug.step_times import _SIDES, step_times


def test_of_a_step_in_which_weights_moved_twice_both_parts_count() -> None:
    rows = [
        {"role": "explorer", "step": 1, "time/rollout_s": 2.0},
        {"role": "trainer", "step": 1, "time/train_s": 3.0},
        {"role": "synchronizer", "step": 1, "time/sync_s": 1.0, "time/step_s": 6.0},
        {"role": "trainer", "step": 2, "time/train_s": 3.0},
        {"role": "synchronizer", "step": 1, "time/sync_s": 1.0, "time/step_s": 4.0},
    ]

    times = step_times(rows, skip=0)

    assert times is not None
    assert (times.num_steps, times.step_s) == (1, 10.0)
    assert times.sides == {"explore": 2.0, "train": 6.0, "sync": 2.0}


def test_of_groups_in_flight_the_sides_overlap() -> None:
    rows = [  # the trainer worked for 6 s since the last batch was taken, and waits for 2 s
        {"role": "explorer", "step": 1, "time/rollout_s": 8.0, "time/trained_beside_s": 6.0},
        {"role": "trainer", "step": 1, "time/train_s": 5.0},
        {"role": "synchronizer", "step": 1, "time/sync_s": 1.0, "time/step_s": 8.0},
    ]

    times = step_times(rows, skip=0)

    assert times is not None
    assert times.step_s == pytest.approx(sum(times.sides.values()) - times.beside_s)


def test_each_time_that_the_trainer_measures_has_a_row_and_no_row_is_of_another() -> None:
    core = Path(trinity.__file__).parent
    text = "\n".join(path.read_text(encoding="utf-8") for path in core.rglob("*.py"))
    measured = {f"time/{name}_s" for name in re.findall(r'\bwatch\("(\w+)"\)', text)}
    written = measured | set(re.findall(r'"(time/\w+_s)"', text))

    read = {name for *_, members in _SIDES for _, name, _ in members if name}

    assert len(measured) > 6
    assert measured <= read <= written
