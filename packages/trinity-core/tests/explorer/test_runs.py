"""How often a workflow is called, and what becomes of what it returns."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy
import pytest
import torch
from trinity.common.experience import EID, Experience
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.common.workflows import SimpleWorkflow, Workflow
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine


class Tutorial(Workflow):
    """As the guide prints it, in own words: asks for rollout_args.n answers."""

    def __init__(self, task, model, auxiliary_models):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.question = task.raw_task.get("question")
        self.rollout_args = task.rollout_args

    def run(self):
        responses = self.model.chat(
            [{"role": "user", "content": self.question}],
            n=self.rollout_args.n,
            temperature=self.rollout_args.temperature,
        )
        return [
            Experience(
                tokens=r.tokens, prompt_length=r.prompt_length, reward=1.0, logprobs=r.logprobs
            )
            for r in responses
        ]


class Awaiting(Tutorial):
    async def run_async(self):
        await asyncio.sleep(0.01)
        return await asyncio.to_thread(Tutorial.run, self)


class Stepping(Workflow):
    def run(self):
        return [
            Experience(
                tokens=[1, 2, 3], prompt_length=1, reward=float(step), metrics={"turn": step}
            )
            for step in range(3)
        ]


def uids(experiences):
    return [experience.eid.uid for experience in experiences]


def test_a_workflow_is_called_repeat_times_and_each_call_makes_one_run(world):
    made = world(a_task(workflow=Tutorial, repeat_times=4))

    result = made.step(3)

    assert made.engine.num_samples == 4
    assert uids(made.sink.last) == ["3/0/0/0", "3/0/1/0", "3/0/2/0", "3/0/3/0"]
    assert {e.eid.tid for e in made.sink.last} == {"3/0"}
    assert result.num_experiences == 4


def test_the_runner_fills_mask_eid_version_and_temperature(world):
    task = a_task(workflow=Tutorial, rollout_args={"temperature": 0.7})
    made = world(task)
    made.step()

    (experience,) = made.sink.last

    assert experience.action_mask.tolist() == [True] * experience.response_length
    assert experience.eid == EID(batch=1, task=0, run=0, step=0)
    assert experience.info["model_version"] == 0
    assert experience.temperature == 0.7


@pytest.mark.parametrize("asks_by", ["wrapper", "client"])
def test_rows_that_a_workflow_builds_are_as_old_as_the_first_reply(world, asks_by):
    engine = ScriptedEngine("46", repeat=True)
    loads = iter([3, 5])

    class Waiting(Tutorial):
        """Weights come before each of its two calls."""

        def run(self):
            for _ in range(2):
                weights = WeightSnapshot(version=WeightVersion(next(loads)), tensors={})
                engine.load_weights(weights)
                if asks_by == "wrapper":
                    self.model.chat([{"role": "user", "content": "2 + 2?"}])
                else:
                    asked = [{"role": "user", "content": "2 + 2?"}]
                    self.model.get_openai_client().chat.completions.create(
                        model=self.model.model_name, messages=asked
                    )
            return [Experience(tokens=[1, 2], prompt_length=1, reward=1.0, logprobs=[-0.5])]

    made = world(a_task(workflow=Waiting), engine=engine)
    made.step()

    assert engine.version == 5
    assert [row.info["model_version"] for row in made.sink.last] == [3]


def test_a_workflow_that_can_repeat_is_called_once_for_the_group(world):
    made = world(a_task(workflow="math_workflow", repeat_times=4))
    made.step()

    assert made.engine.num_requests == 1
    assert made.engine.exchanges[0].request.n == 4
    assert [e.eid.run for e in made.sink.last] == [0, 1, 2, 3]


@pytest.mark.parametrize(("repeat_times", "slices"), [(8, [2, 2, 2, 2]), (5, [2, 2, 1]), (1, [1])])
def test_a_group_is_cut_into_slices(world, repeat_times, slices):
    made = world(
        a_task(workflow="math_workflow", repeat_times=repeat_times), max_repeat_times_per_runner=2
    )
    made.step()

    assert sorted((e.request.n for e in made.engine.exchanges), reverse=True) == slices
    assert [e.eid.run for e in made.sink.last] == list(range(repeat_times))
    assert len(set(uids(made.sink.last))) == repeat_times


def test_slices_do_not_concern_a_workflow_that_makes_one_run(world):
    made = world(a_task(workflow=Tutorial, repeat_times=3), max_repeat_times_per_runner=2)
    made.step()

    assert [e.request.n for e in made.engine.exchanges] == [1, 1, 1]
    assert [
        e.request.key.run for e in sorted(made.engine.exchanges, key=lambda e: e.request.key)
    ] == [
        0,
        1,
        2,
    ]


def test_a_workflow_that_makes_one_run_sees_one(world):
    seen = []

    class Looks(Tutorial):
        def run(self):
            seen.append((self.repeat_times, self.task.repeat_times, self.task.rollout_args.n))
            return super().run()

    world(a_task(workflow=Looks, repeat_times=3)).step()

    assert seen == [(1, 1, 1)] * 3


def test_a_group_of_several_steps_each_numbers_its_runs(world):
    class Episodes(Workflow):
        can_repeat = True

        def run(self):
            return [
                Experience(
                    tokens=[1, 2], reward=1.0, eid=EID(run=run + self.run_id_base, step=step)
                )
                for run in range(self.repeat_times)
                for step in range(2)
            ]

    made = world(a_task(workflow=Episodes, repeat_times=3), max_repeat_times_per_runner=2)
    made.step()

    assert [(e.eid.run, e.eid.step) for e in made.sink.last] == [
        (run, step) for run in range(3) for step in range(2)
    ]


def test_a_workflow_may_number_its_runs_in_the_ids_of_its_answers(world):
    class Numbers(Workflow):
        can_repeat = True

        def run(self):
            answers = self.model.chat([{"role": "user", "content": "?"}], n=self.repeat_times)
            for place, answer in enumerate(answers):
                answer.reward = float(place)
                answer.eid.run = place + self.run_id_base
            return answers[::-1]

    made = world(a_task(workflow=Numbers, repeat_times=3))
    made.step()

    assert [(e.eid.run, e.reward) for e in made.sink.last] == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_a_group_with_too_few_runs_is_a_failure(world):
    class OneOnly(Workflow):
        can_repeat = True

        def run(self):
            return [Experience(tokens=[1, 2], reward=1.0)]

    result = world(a_task(workflow=OneOnly, repeat_times=3), max_failed_ratio=1.0).step()

    assert "requested 3 rollouts, got experiences of 1" in result.failures[0].message


def test_steps_of_a_run_are_numbered_and_its_metrics_are_those_of_the_last(world):
    made = world(a_task(workflow=Stepping, repeat_times=2))
    result = made.step()

    assert uids(made.sink.last) == [f"1/0/{run}/{step}" for run in range(2) for step in range(3)]
    assert result.metrics["rollout/turn/mean"] == 2.0
    assert result.metrics["rollout/reward/mean"] == 2.0


def test_a_reused_instance_sends_its_requests_as_the_run_it_makes(world):
    tasks = [a_task(workflow="math_workflow") for _ in range(3)]
    made = world(*tasks, runner_per_model=1)
    made.step(5)

    keys = [
        (e.request.key.batch, e.request.key.task, e.request.key.request)
        for e in made.engine.exchanges
    ]
    assert keys == [("5", 0, 0), ("5", 1, 0), ("5", 2, 0)]


def test_what_a_rollout_changes_in_its_row_or_arguments_no_other_rollout_sees(world):
    seen = []

    class Changes(Tutorial):
        def run(self):
            row, arguments = self.task.raw_task, self.task.workflow_args
            seen.append((list(row["board"]), dict(arguments["tools"])))
            row["board"].append("x")
            arguments["tools"]["used"] = True
            return super().run()

    task = a_task(workflow=Changes, repeat_times=3, workflow_args={"tools": {}})
    task.raw_task = {**task.raw_task, "board": []}
    world(task, runner_per_model=1).step()

    assert seen == [([], {})] * 3


def test_an_instance_that_is_not_used_again_is_closed(world):
    closed = []

    class Opens(Tutorial):
        def close(self):
            closed.append(self)

    class OpensAndResets(Opens):
        can_reset = True

    made = world(*(a_task(workflow=Opens) for _ in range(2)), runner_per_model=1)
    made.step()
    assert len(closed) == 2

    kept = world(*(a_task(workflow=OpensAndResets) for _ in range(2)), runner_per_model=1)
    kept.step()
    assert len(closed) == 2
    kept.explorer.close()
    assert len(closed) == 3


def test_workflows_that_await_run_on_one_loop_at_the_same_time(world):
    names = []

    class Meets(Tutorial):
        async def run_async(self):
            names.append(threading.current_thread().name)
            while len(names) < 4:  # ends only if all four are under way
                await asyncio.sleep(0.01)
            return Tutorial.run(self)

    made = world(a_task(workflow=Meets, repeat_times=4), runner_per_model=4)
    made.step()

    assert set(names) == {"trinity-event-loop"}
    assert len(made.sink.last) == 4


def test_workflows_that_block_run_at_the_same_time_in_threads_of_their_own(world):
    barrier = threading.Barrier(3, timeout=60)

    class Meets(Tutorial):
        def run(self):
            barrier.wait()
            return super().run()

    made = world(a_task(workflow=Meets, repeat_times=3), runner_per_model=3)
    made.step()

    assert len(made.sink.last) == 3


def test_experiences_come_in_the_order_of_their_ids_however_long_runs_take(world):
    import time

    class Uneven(Tutorial):
        def run(self):
            time.sleep(0.05 if self.run_id_base == 0 else 0.0)
            return super().run()

    made = world(*(a_task(workflow=Uneven, repeat_times=2) for _ in range(3)))
    made.step()

    assert uids(made.sink.last) == [f"1/{task}/{run}/0" for task in range(3) for run in range(2)]


def test_the_metrics_of_rewards_and_workflows_are_logged(world):
    engine = ScriptedEngine("46", "wrong")
    made = world(a_task(workflow="math_workflow", repeat_times=2), engine=engine)

    metrics = made.step().metrics

    # one right and one wrong answer, both without the tags
    assert metrics["rollout/accuracy/mean"] == 0.5
    assert metrics["rollout/reward/max"] == pytest.approx(0.9)
    assert metrics["rollout/reward/min"] == pytest.approx(-0.1)
    assert metrics["rollout/format_score/mean"] == pytest.approx(-0.1)
    assert metrics["rollout/failed_runs"] == 0.0
    # "46" and "wrong" are 2 and 5 tokens, and each ends with one more
    assert metrics["rollout/num_tokens"] == 9.0
    assert metrics["rollout/response_length/max"] == 6.0
    assert {"time/engine_s", "time/workflow_s"} <= metrics.keys()


@pytest.mark.parametrize("kind", [torch.tensor, numpy.float32, numpy.array, int, bool])
def test_a_reward_and_a_metric_of_another_kind_become_plain_numbers(world, kind):
    class Gives(Workflow):
        def run(self):
            return [Experience(tokens=[1, 2], reward=kind(1), metrics={"hits": kind(1)})]

    made = world(a_task(workflow=Gives))

    assert made.step().metrics["rollout/hits/mean"] == 1.0
    ((experience,),) = made.sink.batches
    assert (type(experience.reward), type(experience.metrics["hits"])) == (float, float)
    assert json.loads(json.dumps(experience.to_dict()))["reward"] == 1.0


def test_the_names_of_the_workflow_and_the_class_itself_both_work(world):
    made = world(a_task(workflow=SimpleWorkflow, reward_fn="math_reward"))
    made.step()

    assert made.sink.last[0].reward == pytest.approx(0.9)
