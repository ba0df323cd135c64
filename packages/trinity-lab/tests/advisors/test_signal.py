"""Steps that teach nothing, and tasks that are all alike."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from trinity.common.config import Config
from trinity.extend import get_manager
from trinity.runtime.advisors import Advisors
from trinity.runtime.record.rundir import RunDir
from trinity_lab.advisors.policy import LearningRate
from trinity_lab.advisors.signal import DeadGroups, Difficulty

from .conftest import a_row, both, found

STD = "group_advantages/reward_std/max"


def groups(pattern, *, rewards=None):
    """Return steps in which each 0 is a step of dead groups."""
    rows = [a_row("1/0/0/0", advantage=0.0), a_row("1/0/1/0", advantage=0.7)]
    for step, alive in enumerate(pattern, start=1):
        reward = 0.25 if rewards is None else rewards[step - 1]
        yield from both(step, rows, **{"reward/mean": reward, STD: 0.5 * alive})


def test_six_dead_steps_of_eight_are_found_at_the_eighth(advisor) -> None:
    step, advice = found(advisor(DeadGroups), groups([1, 1, 0, 0, 0, 0, 0, 0]))

    assert step == 8
    assert advice.seen == (
        "in 6 of the last 8 rollout steps (steps 1 to 8) no group had different rewards "
        "(mean reward 0.25), so there was nothing to learn from"
    )
    assert advice.samples == ["1/0/0/0"]  # the row that has an advantage shows nothing
    assert "raise algorithm.repeat_times" in advice.remedy


def test_five_dead_steps_of_each_eight_are_not(advisor) -> None:
    assert found(advisor(DeadGroups), groups([1, 1, 1, 0, 0, 0, 0, 0] * 5)) is None


def test_groups_that_died_because_the_tasks_are_solved_are_not(advisor) -> None:
    # jumps 0 0 0 1 0 0 0: sd sqrt(1/7) = 0.378, noise 0.378 / sqrt(8) = 0.134, and 1 > 4 x 0.134
    solved = groups([1, 1, 1, 0, 0, 0, 0, 0], rewards=[0.0] * 4 + [1.0] * 4)

    assert found(advisor(DeadGroups), solved) is None


def test_an_algorithm_without_groups_is_judged_by_the_range_of_its_rewards(advisor) -> None:
    def steps(width: float):
        for step in range(1, 9):
            yield from both(step, **{"reward/min": 0.25, "reward/max": 0.25 + width})

    assert found(advisor(DeadGroups), steps(0.1)) is None
    assert found(advisor(DeadGroups), steps(0.0))[0] == 8


@pytest.mark.parametrize(("num_filtered", "step"), [(75, 8), (74, None)])
def test_three_quarters_filtered_out_are_found(advisor, num_filtered, step) -> None:
    filtered = {"experience_pipeline/num_read": 100, "advantage/filtered_count": num_filtered}
    steps = [one for at in range(1, 9) for one in both(at, **{STD: 0.5}, **filtered)]

    spoken = found(advisor(DeadGroups), steps)

    assert (spoken and spoken[0]) == step
    if step:
        text = "75% of the experiences of steps 1 to 8 were filtered out: equal rewards"
        assert spoken[1].seen == text


def rewards_of(mean: float):
    rows = [a_row("1/0/0/0", reward=0.0), a_row("1/0/1/0", reward=1.0)]
    ends = {"reward/min": 0.0, "reward/max": 1.0}
    for step in range(1, 20):
        yield from both(step, rows, **{"reward/mean": mean}, **ends)


def test_one_right_reply_of_eighty_is_too_hard(advisor) -> None:
    step, advice = found(advisor(Difficulty), rewards_of(1 / 80))

    assert step == 8
    assert advice.seen == (
        "tasks are too hard: nearly all replies get 0 (mean 0.0125, steps 1 to 8; all rewards lie "
        "in 0 to 1)"
    )
    assert advice.samples == ["1/0/0/0"]
    assert advice.remedy.startswith("Begin with easier tasks")


def test_one_wrong_reply_of_eighty_is_too_easy(advisor) -> None:
    step, advice = found(advisor(Difficulty), rewards_of(79 / 80))

    assert step == 8
    assert advice.seen.startswith("tasks are too easy: nearly all get 1 (mean 0.988,")
    assert advice.samples == ["1/0/1/0"]
    assert advice.remedy.startswith("Use harder tasks")


@pytest.mark.parametrize("mean", [1 / 40, 39 / 40])
def test_one_of_forty_is_neither(advisor, mean) -> None:  # 0.025 of the range, and 0.02 is allowed
    assert found(advisor(Difficulty), rewards_of(mean)) is None


def learned(num_steps: int):
    """Return steps of a run that solves its tasks within 50 steps."""
    for step in range(1, num_steps + 1):
        mean = min(1.0, step / 50)
        ends = {"reward/mean": mean, "reward/min": 0.0, "reward/max": 1.0}
        explored, trained = both(step, **ends, **{STD: 0.3 * (mean < 1.0)})
        trained.metrics["actor/grad_norm"] = 0.5
        yield from (explored, trained)


@pytest.mark.parametrize("kind", [DeadGroups, Difficulty, LearningRate])
def test_a_long_run_that_has_learned_is_left_alone(advisor, kind) -> None:
    assert found(advisor(kind), learned(2500)) is None


def test_a_resumed_run_that_has_learned_is_left_alone(tmp_path) -> None:
    rundir, findings = RunDir(tmp_path), []
    rundir.monitor.mkdir()
    rows = [{"step": one.step, "role": one.role, **one.metrics} for one in learned(400)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (rundir.monitor / "metrics.jsonl").write_text(text)
    config = Config.model_validate({"buffer": {"total_steps": 500}})
    parts = SimpleNamespace(config=config, rundir=rundir, manager=get_manager(), stop_reason="")

    Advisors(parts, findings, tell=lambda: None).replay()

    assert findings == []
