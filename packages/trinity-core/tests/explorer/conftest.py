"""An explorer over a scripted engine, and a small world of tasks for it."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.common.ports import RowValues
from trinity.explorer.explorer import Explorer
from trinity.explorer.scheduler_builder import build_scheduler
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


class Tasks:
    """Tasks one after the other; ends with the last."""

    def __init__(self, *tasks):
        self.tasks = list(tasks)
        self.position = 0
        self.outcomes = []

    def read(self, count):
        taken = self.tasks[self.position : self.position + count]
        if not taken:
            raise StopIteration
        self.position += len(taken)
        return taken

    def feedback(self, outcomes):
        self.outcomes.append(outcomes)

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Sink:
    """Keeps what the explorer hands on."""

    def __init__(self):
        self.batches = []
        self.num_closed = 0

    def process(self, exps):
        self.batches.append(list(exps))
        return {"experience_pipeline/num_written": float(len(exps))}

    def feedback(self):
        return {"0": RowValues(indices=[len(self.batches)], values=[0.5])}

    def close(self):
        self.num_closed += 1

    @property
    def last(self):
        return self.batches[-1]


class World:
    """Everything of a test: engine, explorer, what arrived."""

    def __init__(self, *, tasks, engine, evaluation_sets=(), **settings):
        config = Config()
        config.buffer.batch_size = settings.pop("batch_size", max(1, len(tasks)))
        for name, value in settings.items():
            setattr(config.explorer, name, value)
        self.engine = engine
        self.tasks = Tasks(*tasks)
        self.sink = Sink()
        self.explorer = Explorer(
            config,
            tasks=self.tasks,
            evaluation_sets=evaluation_sets,
            scheduler=build_scheduler(config, engines=[engine], model=model_over(engine)),
            pipeline=self.sink,
        )

    def step(self, number=1):
        return self.explorer.explore_step(number)


@pytest.fixture
def world():
    """Return a function that builds a world; all are closed after the test."""
    made = []

    def build(*tasks, engine=None, **settings):
        settings.setdefault("max_timeout", 20.0)
        settings.setdefault("max_retry_times", 0)
        built = World(
            tasks=tasks or (a_task(),),
            engine=engine or ScriptedEngine("46", repeat=True),
            **settings,
        )
        made.append(built)
        return built

    yield build
    for one in made:
        one.explorer.close()
        one.explorer.close()
