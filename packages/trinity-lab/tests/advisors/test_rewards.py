"""Rewards that are earned otherwise than they were meant."""

from __future__ import annotations

from itertools import chain

import pytest
from trinity_lab.advisors.rewards import NonFinite, RewardHacking

from .conftest import a_row, both, evaluated, explored, found, trained


def rising(held, *, std=0.0):
    """Return four rollout steps before each evaluation; the reward of step n is n / 10."""
    step = 0
    for value in held:
        for _ in range(4):
            step += 1
            rows = [a_row("1/0/0/0", reward=0.1), a_row("1/0/1/0", reward=9.0)]
            yield explored(step, **{"reward/mean": step / 10})
            yield trained(step, rows)
        yield evaluated(step, value, std=std)
    yield trained(step, rows)


def test_training_up_and_held_out_down_twice_in_a_row_is_found(advisor) -> None:
    # training: (0.1 + 0.2 + 0.3 + 0.4) / 4 = 0.25 to (1.3 + 1.4 + 1.5 + 1.6) / 4 = 1.45
    step, advice = found(advisor(RewardHacking), rising([0.5, 0.6, 0.2, 0.2]))

    assert step == 16
    assert advice.seen == (
        "the training reward rose from 0.25 to 1.45, and eval/held_out/reward/mean@2 went from 0.5 "
        "(best 0.6 at step 8) to 0.2 at step 16"
    )
    assert advice.samples == ["1/0/1/0"]  # above the mean of step 16, which is 1.6
    assert "trainer.keep_best" in advice.remedy


def test_a_held_out_reward_that_recovers_between_is_not(advisor) -> None:
    assert found(advisor(RewardHacking), rising([0.5, 0.6, 0.3, 0.7, 0.3, 0.8])) is None


@pytest.mark.parametrize(("last", "step"), [(0.39, None), (0.37, 16)])
def test_a_fall_counts_from_two_and_a_half_standard_errors_on(advisor, last, step) -> None:
    # 8 tasks, 2 rollouts each, sd 0.2 within a task: 1.2 x 0.2 x sqrt(2) / sqrt(16) = 0.085,
    # and 2.5 x 0.085 = 0.212; the falls are 0.21 and 0.23
    spoken = found(advisor(RewardHacking), rising([0.1, 0.6, last, last], std=0.2))

    assert (spoken and spoken[0]) == step


def test_a_training_reward_that_did_not_rise_is_not_gamed(advisor) -> None:
    steps = []
    for at in range(1, 17):
        steps += [explored(at), trained(at)]
        steps += [evaluated(at, 1.0 - at / 20)] if at % 4 == 0 else []

    assert found(advisor(RewardHacking), steps) is None


def test_evaluations_without_a_rollout_are_compared_with_nothing(advisor) -> None:
    steps = [evaluated(at, 1.0 - at / 10) for at in range(1, 7)]

    assert found(advisor(RewardHacking), steps) is None


def parts(width: float, *, total: float = 0.75):
    for step in range(1, 13):
        answer = {"answer/mean": 0.5, "answer/min": 0.0, "answer/max": 1.0}
        layout = {"layout/mean": 0.25, "layout/min": 0.0, "layout/max": width}
        yield explored(step, **{"reward/mean": total}, **answer, **layout)
        yield trained(step)


def test_a_part_that_spans_six_times_the_next_is_found(advisor) -> None:
    step, advice = found(advisor(RewardHacking), parts(6.0))

    assert step == 6
    assert advice.seen == (
        "the part layout of the reward decides alone: it spans 6 within a step, the next one 1 "
        "(steps 1 to 6)"
    )
    assert advice.remedy.startswith("Scale the parts")


def test_one_that_spans_five_times_the_next_is_not(advisor) -> None:
    assert found(advisor(RewardHacking), parts(5.9)) is None


def test_metrics_that_do_not_add_up_to_the_reward_are_no_parts_of_it(advisor) -> None:
    assert found(advisor(RewardHacking), parts(6.0, total=0.5)) is None


NAN, INF = float("nan"), float("inf")


def test_a_metric_that_is_nan_in_three_steps_is_found_with_its_name(advisor) -> None:
    values = [0.5, NAN, 0.5, NAN, NAN]
    steps = [both(step, **{"score/mean": value}) for step, value in enumerate(values, 1)]

    step, advice = found(advisor(NonFinite), chain.from_iterable(steps))

    assert step == 5
    assert advice.seen == "the metric rollout/score/mean is nan in steps 2, 4, 5"
    assert "0/0" in advice.remedy


@pytest.mark.parametrize(
    "metrics",
    [
        [{"score/mean": NAN}, {"score/mean": NAN}, {"score/mean": 1.0}],
        [{"score/mean": NAN}, {"other/mean": NAN}, {"third/max": INF}],
        [{"experience_pipeline/time": NAN}] * 9,
    ],
    ids=["two steps", "three metrics once", "a metric of no rollout"],
)
def test_others_are_not(advisor, metrics) -> None:
    steps = [both(step, **one) for step, one in enumerate(metrics, 1)]

    assert found(advisor(NonFinite), chain.from_iterable(steps)) is None
