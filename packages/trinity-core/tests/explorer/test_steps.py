"""Runs of several experiences: broken chains, steps, runs at once, and environments that close."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest
import torch
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn
from trinity.common.batch import ExperienceBatch
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.outcome import Outcome
from trinity.common.ports import RowValues
from trinity.common.workflows import MultiTurnWorkflow, RewardPropagationWorkflow, Workflow
from trinity.engines.transformers_engine import TransformersEngine
from trinity.explorer.requests import request_groups, requests_of
from trinity_testing.builders import a_task
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled
from trinity_testing.engines import Exchange, ScriptedEngine
from trinity_testing.tiny import CHAT_TEMPLATE, make_tiny_model, make_tiny_tokenizer

FORGETS_THOUGHTS = CHAT_TEMPLATE.replace(
    "message['content']",
    "(message['content'].split('</think>')[-1] if message['role'] == 'assistant' and not loop.last"
    " else message['content'])",
)


class Talks(MultiTurnWorkflow):
    """Talks for as many turns as the run's number, and three more."""

    def run(self):
        memory = []
        for turn in range(self.run_id_base + 3):
            memory = [*memory, {"role": "user", "content": f"turn {turn}"}]
            memory.append({"role": "assistant", "content": self.get_model_response_text(memory)})
        return [self.process_messages_to_experience(memory, self.run_id_base, {"turns": turn})]


class Steps(RewardPropagationWorkflow):
    """Takes as many steps as the run's number, and one more."""

    def step(self, step_num):
        self.model.chat([{"role": "user", "content": f"step {step_num}"}])
        return step_num < self.run_id_base

    def reward(self, exps):
        return float(len(exps))


@pytest.fixture
def forgetful(world):
    """Return a world whose chat template takes thoughts out of earlier replies."""

    def make(*tasks, **settings):
        engine = ScriptedEngine("<think>hm</think>go", repeat=True)
        made = world(*tasks, engine=engine, **settings)
        form = ChatFormat(make_tiny_tokenizer(chat_template=FORGETS_THOUGHTS))
        for runner in made.explorer._scheduler._runners:
            runner._model._chat_format = form
        return made

    return make


def test_the_chains_of_a_broken_conversation_are_parts_of_its_run(forgetful) -> None:
    made = forgetful(a_task(workflow=Talks, repeat_times=2))
    made.step()

    assert [(e.eid.run, e.eid.step, e.eid.suffix, e.reward) for e in made.sink.last] == [
        (0, 0, "chain-0", 0.0),
        (0, 0, "chain-1", 0.0),
        (0, 0, "", 0.0),
        (1, 0, "chain-0", 1.0),
        (1, 0, "chain-1", 1.0),
        (1, 0, "chain-2", 1.0),
        (1, 0, "", 1.0),
    ]
    assert len({e.eid.uid for e in made.sink.last}) == 7
    for experience in made.sink.last:
        spans = trained_spans(experience)
        assert all(not unsampled(experience, span, made.engine.exchanges) for span in spans)


def test_a_group_is_compared_by_run_however_many_chains_a_run_has(forgetful) -> None:
    made = forgetful(a_task(workflow=Talks, repeat_times=2))
    made.step()
    batch, _ = GRPOAdvantageFn()(ExperienceBatch.from_experiences(made.sink.last))

    scores = [float(e.advantages[e.action_mask][0]) for e in batch.write_back()]
    assert scores == pytest.approx([-0.7071] * 3 + [0.7071] * 4, abs=1e-3)


def test_a_broken_conversation_is_told_once_a_run(forgetful, caplog, golden) -> None:
    made = forgetful(*(a_task(workflow=Talks, repeat_times=2) for _ in range(4)), batch_size=2)
    with caplog.at_level(logging.WARNING):
        made.step(1)
        made.step(2)

    [record] = [r for r in caplog.records if r.name == "trinity.explorer.explorer"]
    golden(record.getMessage(), "broken_chains")


class ReadsTooMuch(Talks):
    def run(self):
        text = self.get_model_response_text([{"role": "user", "content": "x" * 20000}])
        memory = [{"role": "user", "content": "go?"}]
        text = self.get_model_response_text(memory)
        memory.append({"role": "assistant", "content": text})
        return [self.process_messages_to_experience(memory, 1.0)]


def test_an_observation_that_was_cut_is_told_once_a_run(world, caplog, golden) -> None:
    made = world(*(a_task(workflow=ReadsTooMuch) for _ in range(2)), batch_size=1)
    with caplog.at_level(logging.WARNING):
        made.step(1)
        made.step(2)

    [record] = [r for r in caplog.records if r.name == "trinity.explorer.explorer"]
    golden(record.getMessage(), "prompts_cut")
    assert {e.truncate_status for e in made.sink.last} == {"prompt_truncated"}


class TalksTooLong(Talks):
    def run(self):
        memory = [{"role": "user", "content": "go?"}]
        text = self.get_model_response_text(memory)
        memory.append({"role": "assistant", "content": text})
        memory.append({"role": "user", "content": "x" * 20000})
        return [self.process_messages_to_experience(memory, 1.0)]


def test_a_reward_that_a_full_context_made_0_is_told_once_a_run(world, caplog, golden) -> None:
    made = world(*(a_task(workflow=TalksTooLong) for _ in range(2)), batch_size=1)
    with caplog.at_level(logging.WARNING):
        made.step(1)
        made.step(2)

    [record] = [r for r in caplog.records if r.name == "trinity.explorer.explorer"]
    golden(record.getMessage(), "context_filled")
    assert {e.reward for e in made.sink.last} == {0.0}


class MasksWhatWasCut(Workflow):
    """Masks as published workflows do."""

    can_repeat = True

    def run(self):
        asked = [{"role": "user", "content": "go"}]
        replies = self.model.chat(asked, n=self.repeat_times, max_tokens=4)
        for run, reply in enumerate(replies):
            reply.reward, reply.eid.run = float(run), run
            if reply.truncate_status == "response_truncated" and reply.action_mask is not None:
                reply.action_mask = torch.zeros_like(reply.action_mask, dtype=torch.bool)
        return replies


def test_a_reply_that_its_workflow_masks_counts_in_its_group_and_teaches_nothing(world) -> None:
    engine = ScriptedEngine("a", "much too long")
    made = world(a_task(workflow=MasksWhatWasCut, repeat_times=2), engine=engine)
    made.step()
    batch, _ = GRPOAdvantageFn()(ExperienceBatch.from_experiences(made.sink.last))

    assert [e.action_mask.any().item() for e in made.sink.last] == [True, False]
    # Rewards 0 and 1: each stands 0.7071 standard deviations from their mean.
    kept, masked = [row.advantages.tolist() for row in batch.write_back()]
    assert kept == pytest.approx([-0.7071] * len(kept), abs=1e-3)
    assert masked == [0.0] * 4


@pytest.mark.acceptance
def test_a_run_whose_answer_cannot_be_judged_is_left_out_and_counted(world) -> None:
    engine = ScriptedEngine("$9^{9^{9^9}}$", "46", "45")
    made = world(a_task(workflow="math_workflow", repeat_times=3), engine=engine)
    result = made.step()

    assert [(e.eid.run, e.metrics["accuracy"]) for e in made.sink.last] == [(1, 1.0), (2, 0.0)]
    assert result.metrics["rollout/failed_runs/timeout"] == 1.0
    [failure] = result.failures
    assert (failure.outcome, failure.run, failure.attempt) == (Outcome.TIMEOUT, 0, 1)
    assert "cannot be said in 0.5 CPU seconds" in failure.message


def test_runs_of_different_length_give_their_own_numbers_of_experiences(world) -> None:
    made = world(a_task(workflow=Steps, repeat_times=3))
    result = made.step()

    assert [(e.eid.run, e.eid.step) for e in made.sink.last] == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (2, 2),
    ]
    assert [e.reward for e in made.sink.last] == [1.0, 2.0, 2.0, 3.0, 3.0, 3.0]
    assert result.metrics["rollout/actual_env_steps/mean"] == 2.0


def test_the_tasks_rollout_args_hold_where_a_call_says_nothing(world) -> None:
    args = {"temperature": 0.25, "max_tokens": 7}
    made = world(a_task(workflow=Steps, rollout_args=args), a_task(workflow=Steps))
    made.step()

    asked = {e.request.key.task: e.request for e in made.engine.exchanges}
    assert (asked[0].temperature, asked[0].max_new_tokens) == (0.25, 7)
    assert asked[1].temperature == 1.0
    assert [e.temperature for e in made.sink.last] == [0.25, 1.0]


class Recorded(TransformersEngine):
    """The embedded engine; keeps what it was asked and said."""

    def submit(self, request):
        future = super().submit(request)
        self.exchanges = getattr(self, "exchanges", [])
        keep = self.exchanges.append
        future.add_done_callback(
            lambda done: keep(Exchange(request=request, completions=tuple(done.result())))
        )
        return future


def test_both_kinds_train_on_what_the_embedded_engine_sampled(world, tmp_path) -> None:
    path = str(make_tiny_model(tmp_path))
    engine = Recorded(model_path=path, max_model_len=512)
    tasks = [a_task(workflow=cls, repeat_times=3) for cls in (Talks, Steps)]
    made = world(*tasks, engine=engine)
    settings = ModelSettings(
        model_path=path, max_model_len=512, max_response_tokens=12, enable_history=True
    )
    for runner in made.explorer._scheduler._runners:
        runner._model = ModelWrapper(engine, ChatFormat.load(path), settings)

    made.step()

    assert [e.eid.task for e in made.sink.last] == [0] * 3 + [1] * 6
    for experience in made.sink.last:
        for span in trained_spans(experience):
            assert not unsampled(experience, span, engine.exchanges)
    sampled = sum(len(c.token_ids) for e in engine.exchanges for c in e.completions)
    assert sum(int(e.action_mask.sum()) for e in made.sink.last) == sampled
    engine.close()


class AtOnce:
    """Counts how many runs are open at the same time."""

    def __init__(self):
        self.now = self.most = 0
        self.lock = threading.Lock()

    def __enter__(self):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_):
        with self.lock:
            self.now -= 1


def counted(*, awaits: bool):
    at_once = AtOnce()

    class InThreads(Workflow):
        def run(self):
            with at_once:
                time.sleep(0.05)
                [reply] = self.model.chat([{"role": "user", "content": "go"}])
            reply.reward = 0.0
            return [reply]

    class Awaits(Workflow):
        async def run_async(self):
            with at_once:
                await asyncio.sleep(0.05)
                [reply] = await self.model.chat_async([{"role": "user", "content": "go"}])
            reply.reward = 0.0
            return [reply]

    return at_once, Awaits if awaits else InThreads


@pytest.mark.parametrize(
    ("mode", "awaits", "most"),
    [
        ("sequential", False, 2),
        ("sequential", True, 2),
        ("multi-threading", False, 6),
        ("multi-threading", True, 6),
        ("asynchronous", True, 6),
        ("asynchronous", False, 2),
    ],
)
def test_concurrent_mode_says_how_many_runs_of_a_task_one_runner_makes_at_once(
    world, mode, awaits, most
) -> None:
    at_once, cls = counted(awaits=awaits)
    tasks = [a_task(workflow=cls, repeat_times=6) for _ in range(3)]
    made = world(*tasks, runner_per_model=2, concurrent_mode=mode, max_repeat_times_per_runner=3)
    made.step()

    assert at_once.most == most
    assert [(e.eid.task, e.eid.run) for e in made.sink.last] == [
        (task, run) for task in range(3) for run in range(6)
    ]
    assert made.engine.num_open_runs == 0


class Team(Workflow):
    """Two agents speak, and the second once more for a group that the workflow names itself."""

    def run(self):
        said = [self.model.chat([{"role": "user", "content": "go"}])[0] for _ in range(3)]
        for place, name in enumerate(("solver", "checker", "checker")):
            said[place].reward, said[place].info["adapter"] = float(place), name
        said[1].eid.task = f"{self.task.task_id}-checker"  # as an agent's dict of rewards names it
        said[2].eid.task = f"{self.task.task_id}-verdicts"
        return said


def test_what_agents_with_adapters_of_their_own_say_is_compared_apart(world) -> None:
    made = world(a_task(workflow=Team, repeat_times=2))
    made.step()

    assert [e.eid.tid for e in made.sink.last] == [
        f"1/{group}" for _ in range(2) for group in ("0-solver", "0-checker", "0-verdicts-checker")
    ]


def test_the_reward_of_each_agent_is_a_metric_too(world) -> None:
    made = world(a_task(workflow=Team))
    made.step()

    named = [(n, v) for e in made.sink.last for n, v in e.metrics.items() if n.endswith("_reward")]
    assert named == [("solver_reward", 0.0), ("checker_reward", 1.0), ("checker_reward", 2.0)]


class Judged(Workflow):
    """An agent speaks twice and has a number of its own; another has the last word."""

    def run(self):
        said = [self.model.chat([{"role": "user", "content": "go"}])[0] for _ in range(3)]
        for place, name in enumerate(("solver", "solver", "checker")):
            said[place].reward, said[place].info["adapter"] = float(place), name
        said[1].metrics["solver_reward"] = 9.0
        return said


def test_the_last_experience_of_a_rollout_is_the_last_that_the_workflow_returned(world) -> None:
    metrics = world(a_task(workflow=Judged)).step().metrics

    assert metrics["rollout/reward/mean"] == 2.0
    assert metrics["rollout/solver_reward/mean"] == 9.0  # the workflow's own number


def test_pieces_hold_runs_of_one_task_up_to_the_limit() -> None:
    _, cls = counted(awaits=False)
    requests = [
        request
        for number in range(2)
        for request in requests_of(
            a_task(workflow=cls, repeat_times=5), batch="1", number=number, max_repeat_times=2
        )
    ]
    for limit, sizes in ((2, [2, 2, 1, 2, 2, 1]), (None, [5, 5])):
        pieces = request_groups(requests, mode="multi-threading", max_at_once=limit)
        assert [len(piece.requests) for piece in pieces] == sizes


class Env:
    """Hangs in its step until it is closed."""

    made: list[Env] = []  # noqa: RUF012 - of all instances

    def __init__(self):
        self.num_closed = 0
        self.is_closed = threading.Event()
        self.made.append(self)

    def close(self):
        self.num_closed += 1
        self.is_closed.set()


class Hangs(Workflow):
    def __init__(self, **given):
        super().__init__(**given)
        self.env = Env()

    def run(self):
        self.env.is_closed.wait(30)
        raise RuntimeError("closed")

    def close(self):
        self.env.close()


class HangsAwaiting(Hangs):
    is_async = True

    async def run_async(self):
        await asyncio.sleep(30)


@pytest.mark.parametrize("cls", [Hangs, HangsAwaiting])
def test_a_run_that_is_late_is_closed_once_and_its_thread_ends(world, cls) -> None:
    Env.made.clear()
    made = world(a_task(workflow=cls), max_timeout=0.2, max_failed_ratio=1.0)

    result = made.step()

    assert result.metrics["rollout/failed_runs/timeout"] == 1.0
    limit = time.monotonic() + 60
    while made.explorer._scheduler.num_hung and time.monotonic() < limit:
        time.sleep(0.01)
    assert made.explorer._scheduler.num_hung == 0
    assert [env.num_closed for env in Env.made] == [1]


class ClosesBadly(Steps):
    def close(self):
        raise OSError("the shop is on fire")


def test_a_close_that_raises_is_told_and_costs_no_run(world, caplog, golden) -> None:
    made = world(a_task(workflow=ClosesBadly, repeat_times=3))
    with caplog.at_level(logging.WARNING):
        result = made.step()

    assert result.metrics["rollout/failed_runs"] == 0.0
    assert len(made.sink.last) == 6
    [record] = [r for r in caplog.records if "close()" in r.getMessage()]
    golden(record.getMessage(), "close_raises")


def test_a_close_that_raises_does_not_hide_why_the_run_failed(world) -> None:
    class FailsAndClosesBadly(ClosesBadly):
        def step(self, step_num):
            raise ValueError("the real reason")

    result = world(a_task(workflow=FailsAndClosesBadly), max_failed_ratio=1.0).step()

    assert "the real reason" in result.failures[0].message


def test_what_operators_say_of_the_tasks_is_told_once_their_experiences_are_written(world) -> None:
    made = world(*[a_task(workflow="math_workflow") for _ in range(2)], batch_size=1)
    made.step(1)
    made.step(2)

    # this sink says in its nth call that row n was half solved
    assert made.tasks.outcomes == [
        {"0": RowValues(indices=[number], values=[0.5])} for number in (1, 2)
    ]
