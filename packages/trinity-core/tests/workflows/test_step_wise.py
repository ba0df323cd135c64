"""Many steps, each an experience of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from trinity.common.workflows import RewardPropagationWorkflow, StepWiseRewardWorkflow
from trinity.errors import ConfigError, WorkflowError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


class Propagates(RewardPropagationWorkflow):
    """Stops at the step that workflow_args name; asks as often as they say."""

    num_rewards = 0

    def step(self, step_num):
        self.steps = [*getattr(self, "steps", []), step_num]
        for chat in range(self.task.workflow_args.get("chats", 1)):
            self.model.chat([{"role": "user", "content": f"step {step_num}, chat {chat}"}])
        return step_num < self.task.workflow_args.get("last", 3)

    def reward(self, exps):
        self.num_rewards += 1
        self.seen = list(exps)
        return 0.25


class Scored(StepWiseRewardWorkflow):
    step = Propagates.step

    def reward(self, exps):
        return float(exps[0].eid.step)


class Numbered(Scored):
    def reward(self, exps, step_num):
        return 10.0 * step_num + len(exps)


def made(cls, engine=None, **args):
    task = a_task(workflow=cls, workflow_args=args)
    return cls(task=task, model=model_over(engine or ScriptedEngine("go", repeat=True)))


def test_each_step_is_an_experience_and_False_ends_the_run() -> None:
    workflow = made(Propagates, last=2)

    experiences = workflow.run()

    assert workflow.steps == [0, 1, 2]
    assert [e.eid.step for e in experiences] == [0, 1, 2]
    assert {e.metrics["actual_env_steps"] for e in experiences} == {3.0}


def test_the_reward_of_the_run_is_asked_for_once_and_given_to_each_step() -> None:
    workflow = made(Propagates)

    experiences = workflow.run()

    assert [e.reward for e in experiences] == [0.25] * 4
    assert workflow.num_rewards == 1
    assert workflow.seen == experiences


@pytest.mark.parametrize(
    ("cls", "rewards"), [(Scored, [0.0, 1.0, 2.0, 3.0]), (Numbered, [1.0, 11.0, 21.0, 31.0])]
)
def test_each_step_has_its_own_reward(cls, rewards) -> None:
    experiences = made(cls).run()

    assert [e.reward for e in experiences] == rewards
    assert [e.info["step_reward"] for e in experiences] == rewards


def test_chats_of_one_step_share_its_number_and_differ_in_their_id() -> None:
    experiences = made(Numbered, chats=2, last=1).run()

    assert [(e.eid.step, e.eid.suffix) for e in experiences] == [
        (0, ""),
        (0, "1"),
        (1, ""),
        (1, "1"),
    ]
    assert ["step_reward" in e.info for e in experiences] == [False, True, False, True]


def test_a_run_has_at_most_max_step_num_steps() -> None:
    class Five(Propagates):
        max_step_num = 5

    class Two(Propagates):
        @property
        def max_step_num(self):
            return 2

    assert len(made(Propagates, last=100, max_env_steps=4).run()) == 4
    assert len(made(Propagates, last=100).run()) == 30
    assert len(made(Five, last=100).run()) == 5
    assert len(made(Two, last=100).run()) == 2


def test_async_steps_and_rewards_are_awaited_by_the_same_loop() -> None:
    class Awaits(RewardPropagationWorkflow):
        async def step(self, step_num):
            await asyncio.sleep(0)
            await self.model.chat_async([{"role": "user", "content": str(step_num)}])
            return step_num < 2

        async def reward(self, exps):
            await asyncio.sleep(0)
            return len(exps)

    workflow = made(Awaits)

    assert Awaits.is_async
    assert not Propagates.is_async
    assert [e.reward for e in asyncio.run(workflow.run_async())] == [3.0] * 3
    assert len(made(Awaits).run()) == 3
    assert len(asyncio.run(made(Propagates).run_async())) == 4


def test_a_plain_step_that_gives_a_coroutine_that_waits_is_refused(golden) -> None:
    class Forgot(Propagates):
        def step(self, step_num):
            return asyncio.sleep(0, result=True)

    with pytest.raises(WorkflowError) as caught:
        made(Forgot).run()

    golden(str(caught.value), "step_wise_awaits")


def test_calls_made_at_once_stand_in_the_order_in_which_they_were_made() -> None:
    class AtOnce(RewardPropagationWorkflow):
        async def step(self, step_num):
            asked = [{"role": "user", "content": name} for name in "abc"]
            calls = [self.model.chat_async([message]) for message in asked]
            await asyncio.gather(*calls)
            return False

        def reward(self, exps):
            return 1.0

    experiences = asyncio.run(made(AtOnce).run_async())

    assert ["a" in e.prompt_text.split("user")[1][:3] for e in experiences] == [True, False, False]


def test_the_state_a_step_begins_in_is_hashed_for_gigpo() -> None:
    class Rooms(Propagates):
        def env_state(self):
            return ["hall", "kitchen", "hall", None][len(getattr(self, "steps", []))]

    hashes = [e.info.get("env_state_hash") for e in made(Rooms).run()]

    assert hashes[0] == hashes[2] != hashes[1]
    assert hashes[3] is None


def test_what_reward_asks_the_model_is_no_part_of_a_step() -> None:
    class Judged(Scored):
        def reward(self, exps):
            self.model.chat([{"role": "user", "content": "Was that good?"}])
            return super().reward(exps)

    class JudgedAtTheEnd(Propagates):
        reward = Judged.reward

    assert [(e.eid.step, e.eid.suffix, e.reward) for e in made(Judged, last=2).run()] == [
        (0, "", 0.0),
        (1, "", 1.0),
        (2, "", 2.0),
    ]


def test_a_step_that_asks_nothing_leaves_out_its_number() -> None:
    class Waits(Scored):
        def step(self, step_num):
            return True if step_num == 1 else super().step(step_num)

    experiences = made(Waits, last=2).run()

    assert [(e.eid.step, e.reward) for e in experiences] == [(0, 0.0), (2, 2.0)]
    assert {e.metrics["actual_env_steps"] for e in experiences} == {3.0}


@pytest.mark.parametrize("base", [Propagates, Scored])
@pytest.mark.parametrize("value", [1, True, 0.5, torch.tensor(0.5), np.float32(0.5)])
def test_any_one_number_is_a_reward(value, base) -> None:
    cls = type("Numbers", (base,), {"reward": lambda self, exps: value})

    assert {e.reward for e in made(cls, last=1).run()} == {float(value)}


@pytest.mark.parametrize(
    ("value", "shown"),
    [("0.5", "'0.5'"), ([1.0], "[1.0]"), (torch.ones(2), "tensor([1., 1.])"), ({}, "{}")],
)
@pytest.mark.parametrize("base", [Propagates, Scored])
def test_what_is_no_number_is_no_reward(value, shown, base) -> None:
    cls = type("Words", (base,), {"reward": lambda self, exps: value})

    with pytest.raises(WorkflowError) as caught:
        made(cls).run()

    assert str(caught.value) == (
        f"what reward() returned is {shown}, which is no number. Give a finite number, or raise "
        f"trinity.errors.EnvError if the run cannot be judged."
    )


@pytest.mark.parametrize("given", [0, -1, 2.5, None, "7"])
def test_max_step_num_is_a_number_above_0(given) -> None:
    cls = type("Limited", (Propagates,), {"max_step_num": given})

    with pytest.raises(ConfigError, match=r"Limited.max_step_num is .*1 or more"):
        made(cls).run()


@pytest.mark.parametrize("answer", ["no", (False,), ("seen", 0.0, True, {}), 2])
def test_a_step_says_yes_or_no(answer) -> None:
    cls = type("Unclear", (Propagates,), {"step": lambda self, step_num: answer})

    with pytest.raises(WorkflowError, match=r"step\(\) returned .*Return True to go on"):
        made(cls).run()


@pytest.mark.parametrize("name", ["no_chat", "no_answer"])
def test_what_a_step_must_do_is_said(name, golden) -> None:
    class Wrong(Propagates):
        def step(self, step_num):
            return False if name == "no_chat" else None

    with pytest.raises(WorkflowError) as caught:
        made(Wrong).run()

    golden(str(caught.value), f"step_wise_{name}")


def test_a_model_that_records_nothing_is_refused_at_once(golden) -> None:
    model = model_over(ScriptedEngine("go"))
    model._settings = replace(model._settings, enable_history=False)

    with pytest.raises(ConfigError) as caught:
        Propagates(task=a_task(), model=model)

    golden(str(caught.value), "step_wise_without_history")


def test_step_and_reward_alone_must_be_defined() -> None:
    class NoReward(StepWiseRewardWorkflow):
        def step(self, step_num):
            return False

    with pytest.raises(TypeError, match="reward"):
        made(NoReward)
