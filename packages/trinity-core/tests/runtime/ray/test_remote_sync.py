"""Weights go to engines by reference, and to every process that takes the place of a lost one."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.errors import ModelError, RayLostError, WorkerLostError
from trinity.extend import get_manager
from trinity.runtime.ray.engine_supervisor import EngineSupervisor
from trinity.runtime.ray.weight_sync import RemoteSync, snapshot_of
from trinity.runtime.ray.worker_handle import NoAnswerError
from trinity.runtime.supervisor import RestartPolicy, WorkerState


class FakeRoom:
    """A worker whose process can be lost, and is started again when it is told to be."""

    def __init__(self, name, log):
        self.name = name
        self.log = log
        self.weights = []  # of this process
        self.died = threading.Event()  # this process
        self.is_gone = False
        self.dies_of_weights = False  # in the middle of the next load
        self.fault = None  # why a call fails
        self.fault_of_building = None
        self.hangs_in = ""  # a method

    def start(self, method, *args):
        self.log.append((self.name, method, *args))
        return Answer(self, method, args)

    def call(self, method, *args):
        self.log.append((self.name, method, *args))
        return Answer(self, method, args).result()

    def facts(self):
        if self.fault_of_building is not None:
            raise self.fault_of_building

    def kill(self, *, comes_back=True):
        self.is_gone = not comes_back
        self.weights = []
        died, self.died = self.died, threading.Event()
        died.set()

    def come_back(self):
        self.is_gone = False


class Answer:
    def __init__(self, worker, method, args):
        self.worker, self.method, self.args = worker, method, args
        self.died = worker.died

    def result(self, timeout_s=None):
        worker = self.worker
        worker.log.append((worker.name, f"waited for {self.method}"))
        if self.method == worker.hangs_in and timeout_s is not None and not self.died.is_set():
            raise NoAnswerError
        if self.method == "liveness" and not self.died.wait(min(timeout_s, 0.05)):
            raise TimeoutError
        if worker.dies_of_weights:
            worker.dies_of_weights = False
            worker.kill()
        if self.died.is_set() or worker.is_gone:
            raise WorkerLostError(worker.name, cause="killed")
        return self.answer()

    def answer(self):
        worker = self.worker
        if worker.fault_of_building is not None:
            raise worker.fault_of_building
        if self.method == "is_there":
            return True
        if worker.fault is not None:
            raise worker.fault
        if self.method == "weights":
            return None
        worker.weights += self.args
        return int((self.args[0] or "v0").removeprefix("v"))


def of(reference):
    """Return what a trainer's snapshot is: a version, and a reference."""
    return lambda: snapshot_of(int(reference.removeprefix("v")), reference)


def until(is_true):
    end = time.monotonic() + 10.0
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def log():
    return []


@pytest.fixture
def workers(log):
    return [FakeRoom(f"engine-{number}", log) for number in range(2)]


@pytest.fixture
def start(workers, log):
    """Return a function that gives the sync of a style, whose engines are there."""
    made = []

    def build(config=None, *, return_s=10.0, load_s=10.0):
        config = config or Config()
        config.synchronizer.sync_method = "memory"
        policy = RestartPolicy(return_s=return_s)
        engines = [EngineSupervisor(worker, policy=policy, load_s=load_s) for worker in workers]
        made.append(RemoteSync(config, get_manager(), engines=engines))
        for engine in engines:
            engine.supervise()
        until(lambda: sum(entry[1] == "liveness" for entry in log) == len(workers))
        return made[-1]

    yield build
    for sync in made:
        sync.close()
        sync.close()
    for thread in threading.enumerate():
        if thread.name.endswith("-weights"):
            thread.join(10.0)
            assert not thread.is_alive()


def test_all_engines_begin_before_one_is_waited_for_and_get_the_reference(start, log) -> None:
    sync = start()
    assert sync.sync(of("v4")) == 4

    own = [entry for entry in log if "load_weights" in entry[1] and entry[2:] != (None,)]
    assert own[-4:] == [
        ("engine-0", "load_weights", "v4"),
        ("engine-1", "load_weights", "v4"),
        ("engine-0", "waited for load_weights"),
        ("engine-1", "waited for load_weights"),
    ]


def test_a_first_process_is_told_that_the_models_own_weights_are_wanted(start, workers) -> None:
    start()

    assert [worker.weights for worker in workers] == [[None], [None]]


def test_a_process_that_takes_the_place_of_a_lost_one_gets_the_latest_weights(
    start, workers, caplog
) -> None:
    sync = start()
    sync.sync(of("v4"))
    workers[1].kill()
    until(lambda: workers[1].weights == ["v4"])
    until(lambda: caplog.messages)

    assert caplog.messages == [
        "engine-1 was lost and is there again, with the weights of version 4"
    ]


@pytest.fixture(params=["fixed", "explorer_driven", "trainer_driven", "fully_async"])
def in_style(request):
    config = Config()
    config.synchronizer.sync_style = request.param
    return config


def test_a_lost_engine_is_not_waited_for_and_catches_up(start, workers, caplog, in_style) -> None:
    sync = start(in_style)
    workers[1].kill(comes_back=False)

    assert sync.sync(of("v4")) == 4
    assert sync.sync(of("v5")) == 5
    assert workers[0].weights[-1] == "v5"
    workers[1].come_back()
    until(lambda: workers[1].weights[-1:] == ["v5"])
    assert "engine-1 is lost: weights go to the others" in caplog.text


def test_one_that_is_lost_in_a_sync_catches_up(start, workers) -> None:
    sync = start()
    workers[1].dies_of_weights = True

    assert sync.sync(of("v4")) == 4
    until(lambda: workers[1].weights == ["v4"])


def test_one_that_cannot_be_built_again_is_done_without(start, workers, caplog) -> None:
    sync = start()
    workers[1].fault_of_building = ModelError("no memory is left")
    workers[1].kill()

    assert sync.sync(of("v4")) == 4
    until(lambda: "engine-1 gets no weights: no memory is left" in caplog.text)
    workers[1].fault_of_building = None  # there is again
    assert sync.sync(of("v5")) == 5
    until(lambda: workers[1].weights[-1:] == ["v5"])


def test_where_all_are_lost_the_sync_waits_for_the_first_that_is_back(start, workers) -> None:
    sync = start()
    for worker in workers:
        worker.dies_of_weights = True
    sync.sync(of("v4"))

    assert ["v4"] in [worker.weights for worker in workers]


def test_where_all_are_lost_one_that_stays_away_is_not_waited_for(start, workers, caplog) -> None:
    sync = start(return_s=1.0)
    workers[0].kill(comes_back=False)
    workers[1].dies_of_weights = True

    assert sync.sync(of("v4")) == 4
    assert workers[1].weights == ["v4"]
    assert "engine-0 is lost: weights go to the others" in caplog.text
    workers[0].come_back()
    until(lambda: workers[0].weights[-1:] == ["v4"])


def test_where_all_are_lost_and_one_cannot_be_built_the_other_answers(start, workers) -> None:
    sync = start()
    workers[0].fault_of_building = ModelError("no memory is left")
    workers[0].kill()
    workers[1].dies_of_weights = True

    assert sync.sync(of("v4")) == 4
    assert workers[1].weights == ["v4"]


def test_a_sync_ends_where_no_process_takes_the_place_of_any(start, workers) -> None:
    sync = start(return_s=0.3)
    for worker in workers:
        worker.kill(comes_back=False)

    with pytest.raises(WorkerLostError, match="engine-0 was lost: none took its place in 0 s"):
        sync.sync(of("v4"))


def test_one_that_is_there_and_does_not_load_ends_the_sync_with_its_own_limit(
    start, workers
) -> None:
    sync = start(return_s=600.0, load_s=0.3)
    for worker in workers:
        worker.hangs_in = "load_weights"
        worker.kill()
    until(lambda: not any(engine._is_ready for engine in sync._engines))
    for engine in sync._engines:
        engine._worker.kill = lambda **how: None  # it stays as it is

    said = "another took its place, and has not loaded the weights in 0 s"
    with pytest.raises(WorkerLostError, match=said):
        sync.sync(of("v4"))


def test_one_that_comes_back_and_hangs_while_it_loads_is_ended_though_another_answers(
    start, workers, caplog
) -> None:
    sync = start(load_s=0.1)
    assert sync.sync(of("v4")) == 4
    kill = workers[1].kill
    workers[1].hangs_in = "load_weights"

    def end(**how):
        workers[1].hangs_in = ""
        kill(**how)

    kill()
    workers[1].kill = end

    until(lambda: workers[1].weights == ["v4"])
    assert "engine-1 is there again and has not loaded its weights in 0 s" in caplog.text


def test_one_that_is_lost_while_it_loads_has_the_whole_time_again_to_be_replaced(
    start, workers, monkeypatch
) -> None:
    engine = start(return_s=100.0)._engines[1]
    now = [1000.0]
    monkeypatch.setattr("trinity.runtime.ray.engine_supervisor.time.monotonic", lambda: now[0])
    engine._enter(WorkerState.LOST)
    now[0] += 90.0
    engine._enter(WorkerState.STARTING)
    now[0] += 20.0
    engine._enter(WorkerState.LOST)  # 110 s after the first loss
    engine._check_wait(1000.0)
    now[0] += 101.0

    with pytest.raises(WorkerLostError, match="none took its place in 100 s"):
        engine._check_wait(1000.0)


def test_one_that_cannot_be_built_again_ends_the_run(start, workers) -> None:
    sync = start()
    for worker in workers:
        worker.fault_of_building = ModelError("no memory is left")
        worker.kill()

    with pytest.raises(ModelError, match="no memory is left"):
        sync.sync(of("v4"))


def test_weights_that_could_not_be_brought_between_two_syncs_are_brought_again(
    start, workers, monkeypatch
) -> None:
    monkeypatch.setattr("trinity.runtime.ray.engine_supervisor.AGAIN_S", 0.05)
    sync = start()
    sync.sync(of("v4"))
    workers[1].fault = ModelError("the memory of the process before is not free yet")
    workers[1].kill()
    until(lambda: workers[1].log.count((workers[1].name, "waited for load_weights")) > 3)

    workers[1].fault = None

    until(lambda: workers[1].weights == ["v4"])


def test_an_engine_that_does_not_come_back_from_loading_is_ended_and_the_next_one_loads(
    start, workers, caplog
) -> None:
    """It gives heartbeats: what hangs is below it, a worker that is stopped or a GPU."""
    sync = start(load_s=0.0)
    workers[1].hangs_in = "load_weights"
    kill = workers[1].kill

    def end(**how):
        workers[1].hangs_in = ""
        kill(**how)

    workers[1].kill = end
    assert sync.sync(of("v4")) == 4

    until(lambda: [worker.weights[-1:] for worker in workers] == [["v4"], ["v4"]])
    assert "engine-1 has not loaded its weights in 0 s (synchronizer.sync_timeout" in caplog.text


def test_a_timeout_of_the_engines_own_is_an_answer(start, workers) -> None:
    sync = start()
    workers[1].fault = TimeoutError("the cache was not written in 5 s")

    with pytest.raises(TimeoutError, match="the cache was not written in 5 s"):
        sync.sync(of("v4"))


def test_an_engine_that_refuses_the_weights_ends_the_run(start, workers) -> None:
    sync = start()
    workers[1].fault = ModelError("of another model")

    with pytest.raises(ModelError, match="of another model"):
        sync.sync(of("v4"))


class FakeSender:
    """Has packed weights."""

    def kept(self):
        return "v4"


def test_a_process_that_is_done_without_is_ended_and_the_next_takes_the_senders_copy(
    start, workers
) -> None:
    engine = start()._engines[1]
    assert engine.expect(FakeSender()) == 1

    engine.mark_lost(ends=True)

    assert not engine.finish()
    until(lambda: engine.is_back(since=time.monotonic(), wait_s=0.1))
    assert workers[1].weights == ["v4"]
    assert engine.expect(FakeSender()) == 2


def test_an_engine_that_is_away_expects_weights_and_gets_them_when_it_is_back(
    start, workers
) -> None:
    engine = start()._engines[1]
    workers[1].kill(comes_back=False)
    until(lambda: not engine._is_ready)

    assert engine.expect(FakeSender()) is None

    workers[1].come_back()
    until(lambda: workers[1].weights[-1:] == ["v4"])


def test_an_explorer_apart_hands_on_what_it_read_in_the_folder_of_the_trainer(
    start, workers
) -> None:
    config = Config(mode="explore")
    config.synchronizer.sync_method = "checkpoint"  # between the sides
    ledger = ExperienceBufferConfig(storage_type="sql")
    config.buffer.trainer_input.experience_buffer = ledger

    start(config).sync(of("v7"))

    assert [worker.weights[-1] for worker in workers] == ["v7", "v7"]


def test_an_engine_that_lives_on_while_ray_is_lost_is_not_said_to_be_back(
    workers, log, monkeypatch, caplog
) -> None:
    monkeypatch.setattr("trinity.runtime.ray.engine_supervisor.AGAIN_S", 0.01)

    def lost(*, timeout_s):
        raise RayLostError("the Ray that this run started has lost the head (GCS)")

    worker = workers[0]
    start = worker.start
    worker.start = lambda method, *args: (
        SimpleNamespace(result=lost) if method == "liveness" else start(method, *args)
    )
    engine = EngineSupervisor(worker)
    engine.supervise()

    until(lambda: not any(t.name == "engine-0-weights" for t in threading.enumerate()))
    assert [entry[1] for entry in log].count("is_there") == 1
    assert "is there again" not in caplog.text


@pytest.mark.parametrize("step", ["sleep", "wake_up"])
def test_an_engine_whose_new_process_cannot_be_built_beside_the_trainer_is_lost(
    start, workers, step
) -> None:
    """The run resumes from its last checkpoint, as it does after the loss of an engine process."""
    sync = start()
    workers[1].fault_of_building = ModelError("there is no memory: the trainer has it")

    with pytest.raises(WorkerLostError, match=r"engine-1.* is not built: there is no memory"):
        sync.all_engines(step, 2)


def test_an_engine_that_does_not_answer_when_it_is_to_sleep_is_lost(start, workers) -> None:
    sync = start(load_s=0.01)
    workers[0].hangs_in = "weights"

    with pytest.raises(WorkerLostError, match=r"engine-0.* did not sleep in time"):
        sync.all_engines("sleep", 2)


def test_an_engine_that_is_there_and_cannot_wake_up_ends_the_run_with_its_own_words(
    start, workers
) -> None:
    sync = start()
    workers[0].fault = ModelError("vLLM could not wake up")

    with pytest.raises(ModelError, match="could not wake up"):
        sync.all_engines("wake_up", ["kv_cache"])
