"""Workflows with ``execute`` and ``update_reward``, as newer published files write them."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from pathlib import Path

import pytest
import trinity
from openai import AsyncOpenAI
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.common.workflows import Task
from trinity.common.workflows.workflow import Status, WorkflowBase, WorkflowWithRecording
from trinity.errors import WorkflowError
from trinity.runtime.record.result import RunStatus
from trinity_serve.endpoint.server import EndpointHost
from trinity_serve.endpoint.session import Session
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format
from trinity_testing.tiny import make_tiny_model

HELLO = [{"role": "user", "content": "hello"}]
PUBLISHED = """
from typing import Dict, List, Optional

from openai import AsyncOpenAI
from trinity.common.workflows import WORKFLOWS
from trinity.common.workflows.workflow import Task, WorkflowWithRecording


@WORKFLOWS.register_module("recorded_agent")
class RecordedAgent(WorkflowWithRecording):
    def __init__(self, *, task: Task, model, auxiliary_models: Optional[List] = None):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.client = AsyncOpenAI(base_url=self.base_url, api_key=self.api_key)

    async def run_async(self) -> Dict[str, float]:
        reply = await self.client.chat.completions.create(
            model=self.model_name,
            messages=[{"role": "user", "content": self.task.raw_task["question"]}],
        )
        length = len(reply.choices[0].message.content or "")
        await self.update_reward(reward=length % 3, info={"length": length})
        return {"reply_length": float(length)}
"""


@pytest.fixture(scope="module")
def room():
    room = EndpointHost()
    yield room
    room.close()


@pytest.fixture
def model(room):
    settings = ModelSettings(
        model_path="scripted", max_model_len=4096, max_response_tokens=64, enable_openai_api=True
    )
    engine = ScriptedEngine("good day", "fine", "bye")
    model = ModelWrapper(
        engine, script_chat_format(), settings, key=RunKey(batch="0", task=1), endpoints=room
    )
    yield model
    model.close_endpoints()


def made(cls, model):
    return cls(task=Task(raw_task={"question": "hello"}), model=model)


class Chats(WorkflowWithRecording):
    rewards: tuple = ()  # of each reply; None: the reply is not scored

    async def run_async(self):
        client = self.model.get_openai_async_client()
        for reward in self.rewards:
            reply = await client.chat.completions.create(model=self.model_name, messages=HELLO)
            if reward is not None:
                await self.update_reward(reward, {"judge": "me"}, [reply.id])
        return {"turns": float(len(self.rewards))}


def test_each_reply_gets_the_reward_of_its_sample_id(model):
    cls = type("Scored", (Chats,), {"rewards": (1.0, None, 0.25)})

    first, last = asyncio.run(made(cls, model).run_async())

    assert (first.reward, last.reward) == (1.0, 0.25)
    assert (first.response_text, last.response_text) == ("good day", "bye")
    assert last.info["judge"] == "me"
    assert last.metrics["turns"] == 3.0
    assert last.metrics["api/unscored"] == 1.0


def test_a_reward_without_ids_is_for_all_replies_and_a_later_one_wins(model):
    class Twice(Chats):
        rewards = (None, None)

        async def run_async(self):
            metrics = await super().run_async()
            await self.update_reward(0.0)
            await self.update_reward(0.5)
            return metrics

    assert [one.reward for one in made(Twice, model).run()] == [0.5, 0.5]


class Talks(WorkflowWithRecording):
    """One conversation of three turns, whose replies are good day, fine, bye."""

    rewards: dict = {}  # noqa: RUF012 - by the number of the turn, given right after it
    with_ids = False

    async def run_async(self):
        client = self.model.get_openai_async_client()
        talk = []
        for turn in range(3):
            talk.append({"role": "user", "content": f"Question {turn}?"})
            reply = await client.chat.completions.create(model=self.model_name, messages=talk)
            talk.append({"role": "assistant", "content": reply.choices[0].message.content})
            if turn in self.rewards:
                ids = [reply.id] if self.with_ids else None
                await self.update_reward(self.rewards[turn], {"turn": turn}, ids)
        return {}


def trained_texts(experiences):
    """Return the texts that each experience trains, with the ends of their turns."""
    decode = script_chat_format().decode
    return [
        decode(one.tokens[one.prompt_length :][one.action_mask].tolist(), skip_special_tokens=True)
        for one in experiences
    ]


def test_an_answer_that_is_on_its_way_while_replies_are_scored_is_not_counted_as_lost(
    model, monkeypatch
):
    num_on_the_way = [1]
    counted = property(lambda _: num_on_the_way[0])
    monkeypatch.setattr(Session, "num_undelivered", counted)

    class Late(Chats):
        rewards = (1.0, 0.5)

        async def run_async(self):
            metrics = await super().run_async()
            num_on_the_way[0] = 0  # its client hears it
            return metrics

    experiences = made(Late, model).run()

    assert len(experiences) == 2
    assert not any("api/undelivered:sum" in one.metrics for one in experiences)


def test_a_conversation_is_one_experience_that_trains_all_of_its_replies(model):
    cls = type("AtItsEnd", (Talks,), {"rewards": {2: 0.5}})

    experiences = made(cls, model).run()

    assert trained_texts(experiences) == ["good dayfinebye"]
    assert [one.reward for one in experiences] == [0.5]
    assert experiences[0].info["turn"] == 2


def test_a_reward_is_for_the_replies_before_it_and_what_comes_after_is_not_trained_on(model):
    cls = type("BeforeTheNote", (Talks,), {"rewards": {1: 0.5}})

    experiences = made(cls, model).run()

    assert trained_texts(experiences) == ["good dayfine"]
    assert [one.reward for one in experiences] == [0.5]
    assert experiences[0].metrics["api/unscored"] == 1.0


def test_replies_of_one_conversation_with_their_own_rewards_are_trained_on_once_each(model):
    rewards = {0: 1.0, 1: 0.25, 2: 1.0}
    cls = type("ByTurn", (Talks,), {"rewards": rewards, "with_ids": True})

    experiences = made(cls, model).run()

    assert trained_texts(experiences) == ["fine", "good daybye"]
    assert [one.reward for one in experiences] == [0.25, 1.0]


def test_the_agent_samples_as_it_asks_and_as_configured_where_it_does_not(model):
    class Plans(Chats):
        async def run_async(self):
            client = AsyncOpenAI(base_url=self.base_url, api_key=self.task.api_key)
            for options in ({"temperature": 0.25, "top_p": 0.5}, {}):
                await client.chat.completions.create(
                    model=self.model_name, messages=HELLO, **options
                )
            await self.update_reward(1.0)

    experiences = made(Plans, model).run()

    asked = [exchange.request for exchange in model._engine.exchanges]
    assert [(one.temperature, one.top_p) for one in asked] == [(0.25, 0.5), (1.0, 1.0)]
    assert [one.temperature for one in experiences] == [0.25, 1.0]


@pytest.mark.parametrize(
    ("rewards", "ids", "words"),
    [
        ((None,), None, "none of 1 recorded replies has a reward. Call update_reward()"),
        ((), None, "no call of the model was recorded"),
        ((None,), ["chatcmpl-0/1/0-7"], "'chatcmpl-0/1/0-7', which is no reply of this run"),
    ],
)
def test_a_run_that_cannot_be_scored_says_why(model, rewards, ids, words):
    class Wrong(Chats):
        async def run_async(self):
            metrics = await super().run_async()
            if ids:
                await self.update_reward(1.0, sample_ids=ids)
            return metrics

    Wrong.rewards = rewards

    with pytest.raises(WorkflowError) as raised:
        made(Wrong, model).run()
    assert words in str(raised.value)


def test_a_reward_that_is_no_number_is_refused_where_it_is_given(model):
    with pytest.raises(WorkflowError, match="update_reward"):
        asyncio.run(made(Chats, model).update_reward("good"))


def test_the_key_of_a_task_is_the_runs_name_where_there_is_no_api():
    settings = ModelSettings(model_path="scripted", max_model_len=4096, max_response_tokens=64)
    key = RunKey(batch="3", task=7, run=2)
    model = ModelWrapper(ScriptedEngine("fine"), script_chat_format(), settings, key=key)

    assert made(Executed, model).task.api_key == "3/7/2"


def test_a_task_travels_to_another_process_with_its_key():
    settings = ModelSettings(model_path="scripted", max_model_len=4096, max_response_tokens=64)
    key = RunKey(batch="3", task=7, run=2)
    model = ModelWrapper(ScriptedEngine("fine"), script_chat_format(), settings, key=key)
    task = made(Executed, model).task

    for copied in (pickle.loads(pickle.dumps(task)), copy.deepcopy(task)):
        assert (copied, copied.api_key) == (task, "3/7/2")


class Executed(WorkflowBase):
    completed = 1

    async def execute(self):
        self.model.set_api_key(self.task.api_key)
        replies = await self.model.chat_async(HELLO)
        replies[0].reward = 1.0
        key = self.task.api_key
        await self.model.overwrite_history_experiences_async(experiences=replies, key=key)
        metrics = [{"turns": 1.0}]
        return Status(self.completed, 1, metrics, message="the agent gave up")


def test_a_workflow_with_execute_gives_its_own_experiences(model):
    [experience] = made(Executed, model).run()

    assert experience.reward == 1.0
    assert experience.metrics["turns"] == 1.0


def test_a_status_that_is_not_complete_is_a_failed_run_with_its_message(model):
    cls = type("GivesUp", (Executed,), {"completed": 0})

    with pytest.raises(WorkflowError, match=r"0 of 1 runs are complete: the agent gave up\."):
        made(cls, model).run()


def test_a_published_file_with_its_own_client_trains(tmp_path: Path, monkeypatch):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "recorded_agent_of_a_user.py").write_text(PUBLISHED)
    monkeypatch.syspath_prepend(tmp_path / "agents")
    (tmp_path / "tasks.jsonl").write_text(
        "".join(json.dumps({"question": f"{n} + 6"}) + "\n" for n in range(4))
    )
    config = tmp_path / "run.yaml"
    config.write_text(
        json.dumps(
            {
                "project": "recording",
                "name": "agent",
                "checkpoint_root_dir": str(tmp_path / "runs"),
                "model": {
                    "model_path": str(make_tiny_model(tmp_path / "model")),
                    "max_model_len": 64,
                    "max_response_tokens": 8,
                },
                "algorithm": {"algorithm_type": "grpo", "repeat_times": 4},
                "buffer": {
                    "batch_size": 2,
                    "total_steps": 1,
                    "explorer_input": {
                        "taskset": {
                            "path": str(tmp_path / "tasks.jsonl"),
                            "default_workflow_type": "recorded_agent_of_a_user:RecordedAgent",
                        }
                    },
                },
            }
        )
    )
    result = trinity.run(config, local=True)

    assert result.status is RunStatus.FINISHED
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    names = {name for line in lines for name in json.loads(line)}
    assert {"rollout/reply_length/mean", "actor/loss"} <= names
