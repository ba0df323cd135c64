"""The explorer's room repeats a step that was lost, from where it began."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trinity.common.config import Config
from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.extend import get_manager
from trinity.runtime.ray import explorer_room
from trinity.runtime.ray.explorer_room import ExplorerRoom
from trinity_testing.builders import a_task


class Numbered(Workflow):
    def run(self):
        reward = float(self.task.raw_task["question"])
        return [Experience(tokens=[1, 2, 3], prompt_length=1, reward=reward)]


class Tasks:
    def __init__(self, config):
        self.position = 0

    def read(self, count):
        self.position += count
        places = range(self.position - count, self.position)
        return [a_task(str(place), workflow=Numbered) for place in places]

    def feedback(self, outcomes):
        assert outcomes == {}

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Pipeline:
    def __init__(self, sink):
        self.sink, self.batches = sink, []

    def process(self, experiences):
        self.batches.append((self.sink.batch_id, [e.reward for e in experiences]))
        return {}

    def feedback(self):
        return {}

    def close(self):
        pass


@pytest.fixture
def explorer(rooms, monkeypatch):
    rooms.config.buffer.batch_size = 2
    rooms.engine_room()
    found = {"runner-0": rooms.runner_room(), "buffer": SimpleNamespace()}
    made = []
    monkeypatch.setattr(explorer_room, "find_room", lambda namespace, name: found[name])
    monkeypatch.setattr(explorer_room, "TaskSource", Tasks)
    monkeypatch.setattr(
        explorer_room,
        "make_experience_pipeline",
        lambda *_, sink, rundir: made.append(Pipeline(sink)) or made[0],
    )
    context = SimpleNamespace(config=rooms.config, manager=get_manager(), rundir=None)
    room = ExplorerRoom(context, namespace="n", num_engines=1)
    yield SimpleNamespace(room=room, pipeline=made[0])
    room.close()
    room.close()


def test_a_step_goes_on_where_the_last_one_ended(explorer) -> None:
    first = explorer.room.explore_step(1)
    explorer.room.explore_step(2)

    assert explorer.pipeline.batches == [("1", [0.0, 1.0]), ("2", [2.0, 3.0])]
    assert first["state"] == {"tasks": {"position": 2}, "recent_runs": [[1, 0], [1, 0]]}
    assert first["result"].num_experiences == 2


def test_a_step_with_a_state_is_done_from_there_again_under_the_same_name(explorer) -> None:
    state = explorer.room.explore_step(1)["state"]
    explorer.room.explore_step(2)
    again = explorer.room.explore_step(2, state)

    assert explorer.pipeline.batches[1] == explorer.pipeline.batches[2] == ("2", [2.0, 3.0])
    assert again["state"]["tasks"] == {"position": 4}


def test_an_explorer_that_only_evaluates_reads_no_tasks(rooms, monkeypatch) -> None:
    rooms.engine_room()
    runner = rooms.runner_room()
    monkeypatch.setattr(explorer_room, "find_room", lambda namespace, name: runner)
    config = Config()
    config.mode = "bench"
    context = SimpleNamespace(config=config, manager=get_manager(), rundir=None)

    room = ExplorerRoom(context, namespace="n", num_engines=1)

    assert room.evaluate(0) == {}
    room.close()
