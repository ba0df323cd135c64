"""Evaluations: mean@k and its like, nothing stored."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import pytest
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.errors import EnvError, RunFailedError
from trinity_testing.builders import a_task


class Scores(Workflow):
    """Gives the reward that the row lists for the run; None fails."""

    def run(self):
        reward = self.task.raw_task["rewards"][self.run_id_base]
        if reward is None:
            raise EnvError("no")
        return [Experience(tokens=[1, 2], reward=reward, metrics={"turns": 2})]


@dataclass
class Evaluation:
    rewards: list
    name: str = "held_out"
    seen: list = field(default_factory=list)

    @property
    def repeat_times(self):
        return len(self.rewards[0])

    def tasks(self):
        return [
            a_task(
                workflow=Scores,
                raw_task={"rewards": rewards},
                repeat_times=len(rewards),
                is_eval=True,
            )
            for rewards in self.rewards
        ]


def test_the_statistics_of_k_runs_are_averaged_over_tasks(world):
    made = world(evaluation_sets=[Evaluation([[0.2, 0.8], [1.0, 1.0]])])

    metrics = made.explorer.evaluate(5)

    # means .5 and 1, population deviations .3 and 0, best .8 and 1, worst .2 and 1
    assert metrics["eval/held_out/reward/mean@2"] == pytest.approx(0.75)
    assert metrics["eval/held_out/reward/std@2"] == pytest.approx(0.15)
    assert metrics["eval/held_out/reward/best@2"] == pytest.approx(0.9)
    assert metrics["eval/held_out/reward/worst@2"] == pytest.approx(0.6)
    assert metrics["eval/held_out/turns/mean@2"] == 2.0
    assert made.sink.batches == []


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_a_metric_that_is_no_finite_number_has_no_deviation_and_ends_nothing(world, odd):
    class Perplexity(Scores):
        def run(self):
            (experience,) = super().run()
            experience.metrics = {"ppl": odd if experience.reward else 1.0, "gap": odd}
            return [experience]

    @dataclass
    class Set(Evaluation):
        def tasks(self):
            return [replace(task, workflow=Perplexity) for task in super().tasks()]

    made = world(evaluation_sets=[Set([[0.0, 1.0]])])
    made.explorer._is_detailed = True

    metrics = made.explorer.evaluate(0)

    for name in ("ppl/std@2", "gap/std@2", "ppl/std", "gap/std"):
        assert math.isnan(metrics[f"eval/held_out/{name}"])
    assert metrics["eval/held_out/ppl/worst@2"] == 1.0
    assert metrics["eval/held_out/reward/std@2"] == 0.5


def test_one_run_a_task_has_a_mean_only(world):
    metrics = world(evaluation_sets=[Evaluation([[1.0], [0.0]])]).explorer.evaluate(0)

    assert metrics["eval/held_out/reward/mean@1"] == 0.5
    assert not [name for name in metrics if name.endswith(("std@1", "best@1"))]


def test_a_failed_run_is_left_out_and_counted(world):
    metrics = world(evaluation_sets=[Evaluation([[1.0, None], [0.0, 0.0]])]).explorer.evaluate(0)

    assert metrics["eval/held_out/reward/mean@2"] == 0.5
    assert metrics["eval/held_out/failed_runs"] == 1.0


def test_a_call_that_fails_for_all_runs_of_a_task_counts_as_all_of_them(world):
    class Together(Scores):
        can_repeat = True

        def run(self):
            if None in self.task.raw_task["rewards"]:
                raise EnvError("no")
            return [Experience(tokens=[1, 2], reward=r) for r in self.task.raw_task["rewards"]]

    @dataclass
    class Set(Evaluation):
        def tasks(self):
            return [replace(task, workflow=Together) for task in super().tasks()]

    sets = [Set([[1.0, None, 1.0], [0.0, 0.0, 0.0]])]

    metrics = world(evaluation_sets=sets, max_failed_ratio=1.0).explorer.evaluate(0)

    assert metrics["eval/held_out/failed_runs"] == 3.0
    assert metrics["eval/held_out/num_tasks"] == 2.0


def test_too_many_failed_runs_stop_the_evaluation(world):
    explorer = world(evaluation_sets=[Evaluation([[None, None]])]).explorer
    with pytest.raises(RunFailedError, match="2 of 2 rollouts failed"):
        explorer.evaluate(0)
    assert explorer.failed_attempts.count >= 2


def test_several_sets_are_kept_apart_and_seed_their_requests_apart(world):
    class Asks(Workflow):
        def run(self):
            (response,) = self.model.chat([{"role": "user", "content": "?"}])
            response.reward = 0.0
            return [response]

    class Set(Evaluation):
        def tasks(self):
            return [a_task(workflow=Asks, is_eval=True)]

    made = world(evaluation_sets=[Set([[0]], name="easy"), Set([[0]], name="hard")])

    metrics = made.explorer.evaluate(3)

    assert {"eval/easy/reward/mean@1", "eval/hard/reward/mean@1"} <= metrics.keys()
    batches = [e.request.key.batch for e in made.engine.exchanges]
    assert batches == ["eval/3/easy", "eval/3/hard"]


def test_the_explorer_goes_on_from_its_state(world):
    made = world(*(a_task(workflow=Scores) for _ in range(3)))
    made.tasks.position = 2
    state = made.explorer.state_dict()
    made.tasks.position = 0

    made.explorer.load_state_dict(state)

    assert made.tasks.position == 2


class Counts(Workflow):
    """Measures and judges nothing."""

    def run(self):
        return [Experience(tokens=[1, 2], metrics={"turns": 3})]


def test_an_evaluation_may_measure_without_a_reward(world):
    evaluation = Evaluation([[0.0]])
    task = a_task(workflow=Counts, is_eval=True)
    evaluation.tasks = lambda: [task]
    made = world(evaluation_sets=[evaluation])

    metrics = made.explorer.evaluate(5)

    assert metrics["eval/held_out/turns/mean@1"] == 3.0
    assert metrics["eval/held_out/failed_runs"] == 0.0
    assert "eval/held_out/reward/mean@1" not in metrics


@pytest.mark.parametrize(
    ("rewards", "lines"),
    [
        ([1.0, None, None, None], 1),
        ([1.0, 0.0, 0.0, 0.0], 0),
        ([None, None, None, None], 0),
    ],
)
def test_a_mean_of_some_rollouts_only_is_told(world, caplog, rewards, lines):
    class Judges(Workflow):
        """Leaves the reward unset where the answer is wrong."""

        def run(self):
            reward = self.task.raw_task["rewards"][self.run_id_base]
            return [Experience(tokens=[1, 2], reward=reward, metrics={"turns": 1})]

    evaluation = Evaluation([rewards])
    [task] = evaluation.tasks()
    evaluation.tasks = lambda: [replace(task, workflow=Judges)]
    world(evaluation_sets=[evaluation]).explorer.evaluate(5)

    assert [one.getMessage() for one in caplog.records] == lines * [
        "evaluation held_out: 3 of 4 rollouts have no reward: the mean is of the others alone. "
        "Set it in each, 0 for a failure."
    ]
