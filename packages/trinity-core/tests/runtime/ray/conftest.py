"""Workers in this process that stand for workers in others, and engines whose answers are known."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from ray import cloudpickle
from trinity.common.config import Config
from trinity.errors import WorkerLostError
from trinity.extend import get_manager
from trinity.runtime.ray import engine_worker, remote_engine, rollout_worker
from trinity.runtime.ray.dispatcher import Dispatcher
from trinity.runtime.ray.engine_worker import EngineWorker
from trinity.runtime.ray.rollout_worker import RolloutWorker
from trinity.runtime.supervisor import RestartPolicy
from trinity_testing.engines import AnsweringEngine
from trinity_testing.scripted_model import script_chat_format


class FakeRoom:
    """Calls a part in this process; what travels is pickled on its way."""

    def __init__(self, name, build):
        self.name = name
        self.build = build
        self.part = build()
        self.calls = []
        self.num_refused = 0  # how many of the next calls find nobody
        self.fault = None  # what keeps the part from being built: every call tells it

    def call(self, method, /, *args, **kwargs):
        if self.num_refused:
            self.num_refused -= 1
            raise WorkerLostError(self.name, cause="nobody is there")
        if self.fault is not None:
            raise _sent(self.fault)
        part = self.part
        self.calls.append(method)
        args, kwargs = _sent((args, kwargs))
        try:
            value, error = getattr(part, method)(*args, **kwargs), None
        except BaseException as raised:  # noqa: BLE001 -- told as the handle tells it
            value, error = None, raised
        if part is not self.part:
            raise WorkerLostError(self.name, cause="killed")
        if error is not None:
            raise _sent(error)
        return _sent(value)

    def start(self, method, /, *args, **kwargs):
        """Call without waiting; what comes of it is read later."""
        outcome = Future()
        try:
            outcome.set_result(self.call(method, *args, **kwargs))
        except Exception as error:  # noqa: BLE001 -- raised where it is read
            outcome.set_exception(error)
        return SimpleNamespace(result=lambda *, timeout_s: outcome.result(timeout_s))

    def kill(self):
        """End the process; whoever waits for it hears so, and another takes its place."""
        old, self.part = self.part, self.build()
        old.close()


def _sent(value):
    return cloudpickle.loads(cloudpickle.dumps(value))


class KeyedEngine(AnsweringEngine):
    """Answers with what the request's key says, as an engine's samples follow from it.

    Attributes:
        is_stuck: leave further requests without an answer.
        arrived: set when as many requests as ``num_wanted`` have come.
    """

    def __init__(self, *, is_stuck=False, num_wanted=1):
        super().__init__()
        self.is_stuck = is_stuck
        self.num_wanted = num_wanted
        self.requests = []
        self.arrived = threading.Event()
        self.futures = []

    def answer(self, request):
        key = request.key
        self.num_samples = 100 * key.task + 10 * key.run  # the log-probabilities follow from it
        return f"{key.task}{key.run}{key.attempt}"

    def submit(self, request):
        self.requests.append(request)
        if len(self.requests) >= self.num_wanted:
            self.arrived.set()
        if not self.is_stuck:
            return super().submit(request)
        self.futures.append(Future())
        return self.futures[-1]


class World:
    """An engine's worker and a runner's, in this process."""

    def __init__(self, monkeypatch):
        self.config = Config()
        self.config.explorer.max_timeout = 20.0
        self.config.explorer.max_retry_times = 0
        self.engines = []  # that are built next; the last one stays
        self.built = []
        self._workers = []
        monkeypatch.setattr(remote_engine, "_LINGER_S", 0.3)  # a busy machine is slow to ask:
        monkeypatch.setattr(remote_engine, "_LINGER_OF_FIRST_S", 5.0)  # messages are counted
        monkeypatch.setattr(engine_worker, "make_engine", lambda config, manager: self._engine())
        monkeypatch.setattr(
            rollout_worker.ChatFormat, "from_config", lambda model: script_chat_format()
        )
        monkeypatch.setattr(
            rollout_worker,
            "find_worker",
            lambda _, name: next(r for r in self._workers if r.name == name),
        )

    @property
    def context(self):
        return SimpleNamespace(config=self.config, manager=get_manager(), name="room")

    def engine_worker(self, *engines, number=0):
        self.engines = list(engines) or [KeyedEngine()]
        return self._kept(FakeRoom(f"engine-{number}", lambda: self._with_weights(number)))

    def _with_weights(self, number):
        part = EngineWorker(self.context, number=number)
        part.load_weights(None)
        part.serve()
        return part

    def rollout_worker(self, number=0):
        return self._kept(
            FakeRoom(
                f"runner-{number}",
                lambda: RolloutWorker(self.context, namespace="n", engine=f"engine-{number}"),
            )
        )

    def close(self):
        for worker in reversed(self._workers):
            worker.part.close()
            worker.part.close()

    def _engine(self):
        engine = self.engines.pop(0) if len(self.engines) > 1 else self.engines[0]
        self.built.append(engine)
        return engine

    def _kept(self, worker):
        self._workers.append(worker)
        return worker


@pytest.fixture
def workers(monkeypatch):
    world = World(monkeypatch)
    yield world
    world.close()


@pytest.fixture
def keyed_engine():
    return KeyedEngine


@pytest.fixture
def dispatcher():
    """Return a function that builds one that looks often; all are closed after the test."""
    made = []

    def build(*workers, poll_s=0.2, **policy):
        made.append(Dispatcher(workers, policy=RestartPolicy(**policy), poll_s=poll_s))
        return made[-1]

    yield build
    for one in made:
        one.close()
        one.close()
