"""Processes that take each step of a sync as they were told to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from trinity.common.ports import WeightSnapshot
from trinity.synchronizer.ipc_weights import IpcStagingBuffer
from trinity.synchronizer.staging import StagingBuffer


class Answer:
    def __init__(self, outcome):
        self.outcome = outcome

    def result(self, *, timeout_s):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Process:
    """Takes each step as it was told to; what was not told goes well."""

    def __init__(self, name, **outcomes):
        self.name = name
        self.outcomes = {step: list(told) for step, told in outcomes.items()}
        self.log = []  # steps, and what they were told

    def start(self, step, *told):
        self.log.append((step, *told))
        return Answer((self.outcomes.get(step) or [""]).pop(0))

    def leave(self, group):
        self.log.append(("leave", group))

    def steps(self):
        return [entry[0] for entry in self.log]

    def specs(self):
        return [entry[1] for entry in self.log if entry[0] == "join"]


class TrainerProcess(Process):
    """Sends what it packs, or shares it; the first weights are version 7."""

    is_ended = False
    refusal = ""  # why nothing is shared on its GPU
    version = 6

    def __init__(self, **outcomes):
        super().__init__("trainer", **outcomes)

    def pack(self):
        return StagingBuffer().pack(self._next())

    def endpoint(self):
        return "10.0.0.1:77/secret"

    def share(self, where):
        self.log.append(("share", *where))
        shared = IpcStagingBuffer().share(self._next())
        return replace(shared, refusal=self.refusal if "gpu" in where else "")

    def end(self):
        self.is_ended = True

    def _next(self):
        self.version += 1
        return WeightSnapshot(version=self.version, tensors={"w": torch.ones(5)})


class EngineProcess(Process):
    process = 1  # None: none is there

    def expect(self, sender):
        return self.process

    def loaded(self):
        self.log.append(("loaded",))

    def mark_lost(self, *, ends):
        self.log.append(("end" if ends else "lost",))
        self.process = None


@pytest.fixture
def a_trainer():
    """Return a function that makes a trainer's process; steps are told their outcomes by name."""
    return TrainerProcess


@pytest.fixture
def an_engine():
    """Return a function that makes an engine's process of a name."""
    return EngineProcess


@pytest.fixture
def two_engines():
    """Return a function that makes two; the steps of the second are told their outcomes."""
    return lambda **outcomes: [EngineProcess("engine-0"), EngineProcess("engine-1", **outcomes)]


@pytest.fixture
def answer():
    """Return a function that makes what a process answers."""
    return Answer
