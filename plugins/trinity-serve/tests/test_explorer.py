"""The explorer of a service: it waits for commits, and takes each run once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trinity.common.experience import EID, Experience
from trinity.errors import DataError
from trinity_serve.explorer import ServedExplorer
from trinity_serve.ports import DueRun


class Store:
    """Gives what a test puts in; writes down what was asked."""

    def __init__(self) -> None:
        self.waiting: list[DueRun] = []
        self.story: list[object] = []
        self.silent: list[int] = []
        self.is_last_failure = False
        self.num_lost = 0
        self.has_more: list[bool] = []

    def due(self):
        return list(self.waiting)

    def taken(self, rewards, *, step):
        self.story.append(("taken", list(rewards), step))
        self.waiting = []

    def rewind(self, step):
        self.story.append(("rewind", step))
        return self.num_lost

    def forget(self):
        self.story.append("forget")
        return self.has_more.pop(0) if self.has_more else False

    def failed(self, rewards):
        self.story.append(("failed", list(rewards)))
        self.waiting = []
        return self.is_last_failure

    def drop(self, *, before, spared):
        self.story.append(("spared", spared))
        silent, self.silent = self.silent, []
        return silent

    def counts(self):
        return {"open": 2, "dropped": 1, "set_aside": 3}

    def close(self):
        self.story.append("store closed")


class Front:
    def __init__(self, store) -> None:
        self.store = store
        self.comes: list[DueRun] = []
        self.forgotten: list[int] = []

    def open(self):
        self.store.story.append("open")

    def busy(self):
        return [9]

    def wait(self, timeout_s):
        self.store.waiting += self.comes

    def forget(self, runs):
        self.forgotten += runs

    def close(self):
        self.store.story.append("front closed")


class Pipeline:
    def __init__(self) -> None:
        self.got: list[Experience] = []

    def process(self, exps):
        self.got += exps
        return {"experience_pipeline/num_written": float(len(exps))}

    def close(self):
        pass


def a_run(number: int, *, reward: float, task: str = "", agent: str = "", calls: int = 1) -> DueRun:
    made = [
        Experience(tokens=[1, 2, 3], prompt_length=1, logprobs=[-1.0, -1.0], eid=EID(step=step))
        for step in range(calls)
    ]
    return DueRun(
        reward_number=10 * number,
        run_number=number,
        name=f"run-{number}",
        task=task,
        agent=agent,
        reward=reward,
        metrics={"turns": float(calls)},
        experiences=tuple(made),
    )


@pytest.fixture
def served():
    """Return an explorer with the things around it."""
    store, pipeline = Store(), Pipeline()
    front = Front(store)
    store.is_stopping = False
    explorer = ServedExplorer(
        front=front,
        store=store,
        pipeline=pipeline,
        max_silence_s=60.0,
        forget=store.forget,
        is_stopping=lambda: store.is_stopping,
    )
    return explorer, store, front, pipeline


def test_a_commit_is_a_step_and_its_runs_are_one_group(served) -> None:
    explorer, store, front, pipeline = served
    front.comes = [a_run(4, reward=1.0, calls=2), a_run(7, reward=0.0)]

    result = explorer.explore_step(1)

    assert [e.eid.uid for e in pipeline.got] == [
        "1/@committed/4/0",
        "1/@committed/4/1",
        "1/@committed/7/0",
    ]
    assert [e.reward for e in pipeline.got] == [1.0, 1.0, 0.0]
    assert [e.info["run"] for e in pipeline.got] == ["run-4", "run-4", "run-7"]
    assert [e.metrics for e in pipeline.got] == [{}, {"turns": 2.0}, {"turns": 1.0}]
    looked = ("spared", [9])
    assert store.story == [("rewind", 0), "open", looked, "forget", looked, ("taken", [40, 70], 1)]
    assert result.num_experiences == 3
    assert result.metrics["rollout/reward/mean"] == 0.5
    assert result.metrics["rollout/num_runs"] == 2
    assert result.metrics["serve/num_tokens"] == 6


def test_what_is_over_is_forgotten_in_parts_and_then_once_a_minute(served) -> None:
    explorer, store, front, _ = served
    store.has_more = [True, True, False]
    for step in (1, 2, 3, 4, 5):
        front.comes = [a_run(step, reward=1.0)]
        explorer.explore_step(step)

    assert store.story.count("forget") == 3


def test_a_backlog_of_commits_keeps_nothing_from_being_dropped_and_forgotten(served) -> None:
    explorer, store, front, _ = served
    store.silent = [5, 6]
    for step in (1, 2):
        store.waiting = [a_run(step, reward=1.0)]
        explorer.explore_step(step)

    assert front.forgotten == [5, 6]
    assert store.story.count("forget") == 1  # once a minute
    assert store.story.count(("spared", [9])) == 2


def test_what_cannot_be_trained_again_is_told(served, caplog) -> None:
    explorer, store, front, _ = served
    store.num_lost, front.comes = 7, [a_run(1, reward=1.0)]
    explorer.explore_step(1)

    assert caplog.messages == [
        "7 rewards were trained after this checkpoint, but their replies have been deleted "
        "(explorer.keep_runs_s): they are not trained again."
    ]


def test_runs_of_a_task_are_a_group_and_so_are_those_of_an_agent(served) -> None:
    explorer, _, front, pipeline = served
    front.comes = [a_run(1, reward=1.0, task="sum"), a_run(2, reward=0.0, task="sum", agent="a")]

    explorer.explore_step(3)

    assert [e.eid.tid for e in pipeline.got] == ["3/sum", "3/sum:a"]


def test_groups_of_other_tasks_and_agents_never_have_one_name(served) -> None:
    explorer, _, front, pipeline = served
    front.comes = [
        a_run(1, reward=1.0, task="sum", agent="a"),
        a_run(2, reward=1.0, task="sum-a"),
        a_run(3, reward=1.0),
        a_run(4, reward=1.0, task="committed"),
        a_run(5, reward=1.0, agent="a"),
    ]

    explorer.explore_step(1)

    assert len({e.eid.tid for e in pipeline.got}) == 5


def test_a_metric_called_reward_is_shown_beside_no_reward(served) -> None:
    explorer, _, front, _ = served
    front.comes = [replace(a_run(1, reward=1.0), metrics={"reward": -7.0, "turns": 2.0})]

    metrics = explorer.explore_step(1).metrics

    assert metrics["rollout/reward/mean"] == 1.0
    assert metrics["rollout/turns/mean"] == 2.0


@pytest.mark.parametrize("fails", ["taken", "counts"])
def test_what_the_store_cannot_note_is_not_written(served, monkeypatch, fails) -> None:
    explorer, store, front, pipeline = served
    front.comes = [a_run(1, reward=1.0)]

    def full(*args, **kwargs):
        raise DataError("serve.db cannot be used: database is locked.")

    monkeypatch.setattr(store, fails, full)

    with pytest.raises(DataError, match="is locked"):
        explorer.explore_step(1)

    assert pipeline.got == []


def test_runs_that_cannot_be_processed_twice_are_set_aside_and_told(served, caplog) -> None:
    explorer, store, front, pipeline = served
    whole = pipeline.process

    def process(exps):
        if exps[0].reward == 7.0:
            raise DataError("1 experiences have a reward that is NaN or infinite.")
        return whole(exps)

    pipeline.process = process
    store.waiting, front.comes = [a_run(1, reward=7.0)], [a_run(2, reward=1.0)]

    with pytest.raises(DataError, match="NaN or infinite"):
        explorer.explore_step(1)
    assert store.story[-1] == ("failed", [10])

    store.waiting, store.is_last_failure = [a_run(1, reward=7.0)], True
    assert explorer.explore_step(1).metrics["serve/set_aside"] == 3

    assert [e.eid.uid for e in pipeline.got] == ["1/@committed/2/0"]
    assert "processing 1 rewarded rollouts failed twice; they stay untrained" in caplog.text
    assert "untrained: run-1. 1 experiences have a reward" in caplog.text


def test_a_full_disk_is_no_runs_fault(served) -> None:
    explorer, store, _, pipeline = served
    store.waiting, store.is_last_failure = [a_run(1, reward=1.0)], True

    def process(exps):
        raise DataError("rows.jsonl cannot be written.") from OSError("disk full")

    pipeline.process = process

    with pytest.raises(DataError, match="cannot be written"):
        explorer.explore_step(1)

    assert ("failed", [10]) not in store.story


def test_it_goes_back_to_where_the_weights_are_once(served) -> None:
    explorer, store, front, _ = served
    front.comes = [a_run(1, reward=1.0)]

    explorer.explore_step(6)
    explorer.explore_step(7)

    assert [one for one in store.story if one[0] == "rewind"] == [("rewind", 5)]
    assert store.story.count("open") == 1


def test_silent_runs_are_dropped_while_it_waits(served) -> None:
    explorer, store, front, _ = served
    store.silent, front.comes = [5, 6], [a_run(1, reward=1.0)]

    explorer.explore_step(1)

    assert front.forgotten == [5, 6]


def test_a_stop_ends_the_wait(served) -> None:
    explorer, store, _, pipeline = served
    store.is_stopping = True

    with pytest.raises(StopIteration):
        explorer.explore_step(1)

    assert pipeline.got == []


def test_it_answers_nobody_once_it_is_closed(served) -> None:
    explorer, store, _, _ = served

    explorer.close()

    assert store.story == ["front closed", "store closed"]
