"""Rollouts that fail, are old, or are another policy's."""

from __future__ import annotations

import pytest
from trinity.common.outcome import Outcome, RunFailure
from trinity.explorer.groups import counts_of
from trinity.explorer.requests import RolloutResult, requests_of
from trinity_lab.advisors.rollouts import BrokenChats, Failures, Mismatch, Staleness
from trinity_testing.builders import a_task, an_experience

from .conftest import explored, found, trained

VERSION = "sample/model_version/mean"


def gaps(values, *, age=0.0):
    """Return steps whose samples are so many optimizer steps old; the first one's cannot be."""
    return [
        trained(step, rollout_logprob_diff=value, **{VERSION: max(step - 1 - age, 0.0)})
        for step, value in enumerate(values, start=1)
    ]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_log_probabilities_that_differ_on_fresh_samples_are_found(advisor, sign) -> None:
    step, advice = found(advisor(Mismatch), gaps([0.0, *[sign * 0.07] * 3]))

    assert step == 4  # 3 x 0.07 / 4 = 0.0525
    assert advice.seen == (
        "log-probabilities of rollout and trainer differ by 0.0525 nats a token (steps 1 to 4), "
        "though the samples are only 0.0 optimizer steps old"
    )
    assert "audit: warn" in advice.remedy


@pytest.mark.parametrize(
    ("gap", "age", "step"), [(0.049, 0.0, None), (0.49, 1.0, None), (0.51, 1.0, 4)]
)
def test_the_limit_is_ten_times_that_on_old_ones(advisor, gap, age, step) -> None:
    spoken = found(advisor(Mismatch), gaps([gap] * 30, age=age))

    assert (spoken and spoken[0]) == step


def test_rows_of_a_file_whose_policy_is_unknown_are_left_alone(advisor) -> None:
    steps = [trained(step, rollout_logprob_diff=0.9) for step in range(1, 31)]

    assert found(advisor(Mismatch), steps) is None


def test_rows_of_a_version_that_the_run_has_not_reached_are_of_another_run(advisor) -> None:
    steps = [trained(step, rollout_logprob_diff=0.9, **{VERSION: 40.0}) for step in range(1, 31)]

    assert found(advisor(Mismatch), steps) is None
    assert found(advisor(Staleness), steps) is None


def test_a_file_of_another_run_is_left_alone_where_its_versions_look_fresh(advisor) -> None:
    assert found(advisor(Mismatch, mode="train"), gaps([0.2] * 30)) is None


def test_samples_of_four_steps_are_found(advisor) -> None:
    ages = [0.0, 2.0, 4.0, 6.0, 4.0]  # the last four: 16 / 4
    steps = [trained(step, **{VERSION: step - 1 - age}) for step, age in enumerate(ages, start=10)]

    step, advice = found(advisor(Staleness), steps)

    assert step == 14
    assert advice.seen == (
        "samples were 4.0 optimizer steps old when they were trained (steps 11 to 14)"
    )
    assert "sync_interval" in advice.remedy
    assert found(advisor(Staleness, mode="train"), steps) is None  # a file of another day


@pytest.mark.parametrize(("interval", "step"), [(8, None), (9, 9)])
def test_samples_are_as_old_as_the_mean_of_a_sync_interval(advisor, interval, step) -> None:
    # of 8 steps between two syncs 0 to 7, 3.5 in the mean; of 9 steps 4
    steps = [
        trained(number, **{VERSION: float((number - 1) // interval * interval)})
        for number in range(1, 31)
    ]

    spoken = found(advisor(Staleness, synchronizer={"sync_interval": interval}), steps)

    assert (spoken and spoken[0]) == step


def test_younger_ones_are_not(advisor) -> None:
    steps = [trained(step, **{VERSION: step - 1 - 3.9}) for step in range(5, 31)]

    assert found(advisor(Staleness), steps) is None


def failing(num_failed, num_good, *, num_again=0, num_rows=1):
    """Return steps with the counts that a run makes of rollouts: three attempts, then they fail."""
    requests = requests_of(
        a_task(repeat_times=num_failed + num_good), batch="1", number=0, max_repeat_times=1
    )
    late, judge = (
        RunFailure(outcome=outcome, workflow="w", plugin="p", task_id="1/0", run=0, message="?")
        for outcome in (Outcome.TIMEOUT, Outcome.ENV_ERROR)
    )
    rows = (an_experience(),) * num_rows
    results = [
        RolloutResult(request=request, failure=late, retried=(late, late))
        if place < num_failed
        else RolloutResult(
            request=request,
            experiences=rows,
            retried=(judge,) * (place < num_failed + num_again),
        )
        for place, request in enumerate(requests)
    ]
    for step in range(1, 13):
        yield explored(step, **counts_of(results))
        yield trained(step)


def test_a_tenth_of_failed_runs_is_found(advisor) -> None:
    step, advice = found(advisor(Failures), failing(2, 28, num_again=1))

    assert step == 4
    assert advice.seen == (
        "10% of the rollouts failed, or had to be made again (steps 1 to 4; 8 timeout, 4 env_error)"
    )
    assert advice.remedy.startswith("trinity log RUN names the errors")


def test_one_of_eleven_is_not(advisor) -> None:
    assert found(advisor(Failures), failing(1, 10)) is None


def test_a_rollout_that_failed_in_each_of_its_attempts_is_counted_once(advisor) -> None:
    assert found(advisor(Failures), failing(6, 94)) is None


def test_a_rollout_of_many_rows_is_one_rollout(advisor) -> None:
    _, advice = found(advisor(Failures), failing(4, 12, num_rows=20))

    assert advice.seen.startswith("25% of the rollouts failed, or had to be made again")


def chats(num_continued, num_broken):
    for step in range(1, 13):
        yield explored(
            step,
            **{"api/continued/sum": num_continued, "api/broken_edited/sum": num_broken},
        )
        yield trained(step)


def test_chats_of_which_a_fifth_breaks_are_found_once_fifty_were_seen(advisor) -> None:
    step, advice = found(advisor(BrokenChats), chats(8, 2))

    assert step == 5
    assert advice.seen == (
        "only 40 of 50 replies to chats with an earlier one went on by its token ids (up to step "
        "5; 10 edited)"
    )
    assert "docs/explanation/chats.md" in advice.remedy


def test_chats_of_which_a_tenth_breaks_are_not(advisor) -> None:
    assert found(advisor(BrokenChats), chats(9, 1)) is None
