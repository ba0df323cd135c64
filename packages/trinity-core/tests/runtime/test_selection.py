"""Which checkpoints are the best, and when a run stops for it, by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from trinity.common.config import Config
from trinity.errors import ConfigError
from trinity.runtime.record.progress import Progress, read_progress
from trinity.runtime.record.result import RunResult, RunStatus, StageResult, closing_lines
from trinity.runtime.selection import Selection

NAME = "eval/held_out/reward/mean@4"


def selection(**trainer) -> Selection:
    return Selection(Config.model_validate({"trainer": trainer}))


def evaluated(one: Selection, *values: float, progress: Progress | None = None) -> Progress:
    """Note an evaluation after each train step, as after a kill where the state is read again."""
    progress = progress or Progress()
    for step, value in enumerate(values, start=progress.train_steps):
        progress.train_steps = step
        one.note({"eval/held_out/failed_runs": 0.0, NAME: value}, progress)
        state = json.loads(json.dumps({"progress": progress.state_dict(), "explorer": {}}))
        progress = read_progress(state)
    return progress


@pytest.mark.parametrize(
    ("settings", "best"),
    [
        ({}, [(0.9, 3)]),
        ({"num": 2}, [(0.9, 3), (0.5, 1)]),  # of equals the earlier; the start is no checkpoint
        ({"num": 2, "mode": "min"}, [(0.1, 4), (0.5, 1)]),
        ({"metric": "eval/held_out/failed_runs", "num": 1}, [(0.0, 1)]),
    ],
)
def test_the_best_are_kept_in_their_order(settings, best) -> None:
    progress = evaluated(selection(keep_best=settings), 1.0, 0.5, 0.5, 0.9, 0.1, math.nan)

    assert progress.best == best


@pytest.mark.parametrize(
    ("settings", "values", "before"),
    [
        ({}, [0.5, 0.4, 0.45], 0.5),
        ({}, [0.5, 0.4, 0.5], None),
        ({}, [0.0, -0.1], 0.0),
        ({"mode": "min"}, [0.5, 0.6], 0.5),
        ({"mode": "min"}, [0.5, 0.6, 0.4], None),
        ({}, [math.nan, 0.1], None),
        ({}, [0.5], None),  # there is no checkpoint to compare
    ],
)
def test_a_model_that_was_better_before_training_is_known(settings, values, before) -> None:
    one = selection(keep_best=settings)

    assert one.better_before(evaluated(one, *values)) == before


def test_a_run_without_an_evaluation_before_training_compares_with_none() -> None:
    one = selection(keep_best={})
    progress = evaluated(one, 0.5, 0.4, progress=Progress(train_steps=1))

    assert one.better_before(progress) is None


def test_the_end_of_a_run_says_that_no_checkpoint_reached_the_model_before_training() -> None:
    stage = StageResult(
        name="",
        status=RunStatus.FINISHED,
        directory=Path("run"),
        checkpoint=Path("run/global_step_9"),
        best=((0.41, 3),),
        better_before=0.5,
    )

    assert closing_lines(RunResult(directory=Path("run"), stages=(stage,)))[-2:] == [
        "best by trainer.keep_best: run/global_step_3/actor/huggingface (0.41)",
        "the best checkpoint is worse than the model before training (0.5)",
    ]


def test_the_end_of_an_interrupted_run_says_after_which_step_it_was_evaluated() -> None:
    metric = "eval/held_out/reward/mean@4"
    stopped = StageResult(
        name="",
        status=RunStatus.INTERRUPTED,
        directory=Path("run"),
        first_evaluation={metric: 0.25},
        evaluation={metric: 0.5},
        evaluated_step=50,
    )

    lines = [
        closing_lines(RunResult(directory=Path("run"), stages=(stage,)))[-1]
        for stage in (stopped, replace(stopped, status=RunStatus.FINISHED))
    ]

    assert lines == [
        f"  {metric} 0.500 (after step 50, at the start 0.250)",
        f"  {metric} 0.500 (at the start 0.250)",
    ]


@pytest.mark.parametrize("section", ["keep_best", "early_stopping"])
def test_an_evaluation_without_rewards_is_refused_with_what_is_missing(section) -> None:
    one = selection(**{section: {"patience": 1} if section == "early_stopping" else {}})

    with pytest.raises(ConfigError, match=rf"^trainer\.{section}\.metric: no rollout has a reward"):
        one.note({"eval/held_out/turns/mean@2": 2.0}, Progress())


def test_a_checkpoint_is_asked_for_where_it_is_among_the_best() -> None:
    one, progress = selection(keep_best={"num": 2}), Progress()
    asked = []
    for step, value in enumerate([0.5, 0.3, 0.2, 0.4], start=1):
        progress.train_steps = step
        asked.append(one.note({NAME: value}, progress))

    assert asked == [True, True, False, True]


@pytest.mark.parametrize(
    ("values", "in_vain", "stops"),
    [
        ([0.5, 0.6, 0.7], 0, False),
        ([0.5, 0.52, 0.54], 2, True),  # each by less than min_delta beyond 0.5
        ([0.5, 0.4, 0.56, 0.1], 1, False),
        ([0.5, math.nan, 0.2], 2, True),
        ([0.0, 0.0, 0.0], 2, True),
        ([math.nan, 0.2, 0.3], 0, False),
        ([math.nan, math.nan, math.nan], 2, True),
    ],
)
def test_patience_counts_evaluations_without_an_improvement(values, in_vain, stops) -> None:
    one = selection(early_stopping={"patience": 2, "min_delta": 0.05})

    progress = evaluated(one, *values)

    assert progress.evaluations_in_vain == in_vain
    assert bool(one.reason_to_stop(progress)) is stops


def test_wall_time_counts_over_all_starts() -> None:
    one = selection(early_stopping={"max_wall_time": "1.5h"})

    assert not one.reason_to_stop(Progress(seconds=5399.0))
    assert one.reason_to_stop(Progress(seconds=5400.0)) == "max_wall_time of 5400 s is over"


def test_a_metric_that_no_evaluation_has_is_named() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.keep_best\.metric: .*mean@8"):
        evaluated(selection(keep_best={"metric": "eval/held_out/reward/mean@8"}), 0.1, 0.2)


def test_a_run_that_asks_for_nothing_writes_the_same_state_as_before() -> None:
    assert "best" not in Progress().state_dict()
    assert "seconds" not in Progress().state_dict()


def test_a_state_in_which_a_later_version_wrote_more_is_read() -> None:
    state = {"progress": Progress(train_steps=3).state_dict() | {"of_a_later_version": 1}}

    assert read_progress(state | {"explorer": {}}) == Progress(train_steps=3)
