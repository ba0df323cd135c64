"""Who maps the trainer's weights, who is done without, and what that is to the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from trinity.common.config import Config
from trinity.common.ports import WeightSnapshot
from trinity.errors import ModelError, RoomLostError
from trinity.synchronizer import ipc
from trinity.synchronizer.channel import BrokenOffError
from trinity.synchronizer.gpu_memory import HandleError
from trinity.synchronizer.ipc import IpcSync
from trinity.synchronizer.shared import SharedOutbox

SILENT = TimeoutError()  # there is no answer, however long one waits
GONE = BrokenOffError("the weights that process 7 shared are gone.")


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
        self.log = []

    def start(self, step, *told):
        self.log.append((step, *told))
        return Answer((self.outcomes.get(step) or [""]).pop(0))

    def steps(self):
        return [entry[0] for entry in self.log]


class TrainerProcess(Process):
    is_ended = False
    refusal = ""  # why nothing is shared on its GPU

    def share(self, where):
        self.log.append(("share", *where))
        shared = SharedOutbox().share(WeightSnapshot(version=7, tensors={"w": torch.ones(5)}))
        return replace(shared, refusal=self.refusal if "gpu" in where else "")

    def end(self):
        self.is_ended = True


class EngineProcess(Process):
    process = 1  # None: none is there

    def expect(self, sender):
        return self.process

    def load(self):
        self.log.append(("load",))

    def miss(self, *, ends):
        self.log.append(("end" if ends else "lost",))


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(ipc, "GRACE_S", 0.0)


def synced(trainer, engines, *, times=1, offloads=False):
    config = Config()
    config.synchronizer.sync_timeout = 0.001
    config.trainer.param_offload = offloads
    sync = IpcSync(engines, sender=trainer, config=config)
    for _ in range(times):
        version = sync.sync(lambda: pytest.fail("weights go through no store"))
    return version


def two_engines(**outcomes_of_the_second):
    return [EngineProcess("engine-0"), EngineProcess("engine-1", **outcomes_of_the_second)]


def test_each_engine_maps_what_is_shared_and_nobody_meets() -> None:
    trainer, engines = TrainerProcess("trainer"), two_engines()

    assert synced(trainer, engines) == 7

    assert trainer.log == [("device",), ("share", "cpu")]
    assert [engine.steps() for engine in engines] == [["receive", "load"]] * 2
    assert [engine.log[0][1].shipment.version for engine in engines] == [7, 7]


def test_an_engine_that_is_away_is_not_waited_for() -> None:
    engines = two_engines()
    engines[0].process = None

    synced(TrainerProcess("trainer"), engines)

    assert engines[0].steps() == []
    assert engines[1].steps() == ["receive", "load"]


@pytest.mark.parametrize(
    ("outcome", "last"),
    [(RoomLostError("engine-1", cause="it ended or was killed"), "lost"), (SILENT, "end")],
)
def test_one_that_is_lost_or_silent_is_done_without_and_the_others_hear_nothing_of_it(
    outcome, last, caplog
) -> None:
    trainer, engines = TrainerProcess("trainer"), two_engines(receive=[outcome])

    synced(trainer, engines)

    assert engines[0].steps() == ["receive", "load"]
    assert engines[1].steps() == ["receive", last]
    assert trainer.steps() == ["device", "share"]
    assert "engine-1 is missing where weights are sent" in caplog.text


def test_one_that_finds_none_tries_once_more_and_the_trainer_is_asked_whether_it_is_there() -> None:
    trainer, engines = TrainerProcess("trainer"), two_engines(receive=[GONE])

    synced(trainer, engines)

    assert trainer.steps() == ["device", "share", "device"]
    assert engines[0].steps() == ["receive", "load"]
    assert engines[1].steps() == ["receive", "receive", "load"]


def test_one_that_never_finds_any_is_ended_and_said(caplog) -> None:
    engines = two_engines(receive=[GONE, GONE])

    synced(TrainerProcess("trainer"), engines)

    assert engines[1].steps() == ["receive", "receive", "end"]
    assert (
        "engine-1 is missing where weights are sent: it did not take them whole, 2 times (the "
        "weights that process 7 shared are gone). They go to the others"
    ) in caplog.text


def test_a_trainer_that_is_lost_before_all_have_them_is_the_runs_loss() -> None:
    lost = RoomLostError("trainer", cause="it ended or was killed", is_final=True)
    engines = two_engines(receive=[GONE])

    with pytest.raises(RoomLostError, match="trainer was lost"):
        synced(TrainerProcess("trainer", device=["", lost]), engines)

    assert engines[1].steps() == ["receive"]


def test_a_trainer_that_is_silent_is_ended_and_the_run_goes_back() -> None:
    trainer = TrainerProcess("trainer", device=["", SILENT])

    with pytest.raises(RoomLostError, match="it does not come back from sending weights"):
        synced(trainer, two_engines(receive=[GONE]))

    assert trainer.is_ended


def test_an_engine_that_cannot_have_them_ends_the_run_in_its_words() -> None:
    refused = ModelError("this process is on another machine than the trainer.")

    with pytest.raises(ModelError, match="is on another machine than the trainer"):
        synced(TrainerProcess("trainer"), two_engines(receive=[refused]))


@pytest.mark.parametrize(
    ("devices", "where"),
    [
        (["a", "a", "a"], ["gpu"]),
        (["a", "a", "b"], ["cpu", "gpu"]),
        (["a", "b", ""], ["cpu"]),
        (["a", "a", SILENT], ["cpu", "gpu"]),  # it may be there again, and on another one
        (["", "a", "a"], ["cpu"]),
    ],
)
def test_only_engines_on_the_trainers_gpu_have_the_weights_there(devices, where) -> None:
    trainer = TrainerProcess("trainer", device=devices[:1])
    engines = [EngineProcess(f"engine-{n}", device=devices[n + 1 : n + 2]) for n in range(2)]

    synced(trainer, engines)

    assert trainer.log == [("device",), ("share", *where)]
    assert [engine.steps()[-2:] for engine in engines] == [["receive", "load"]] * 2


REFUSED = HandleError("cudaIpcOpenMemHandle failed with CUDA's error 801.")


def test_an_engine_that_may_open_nothing_on_the_gpu_has_the_cpus_at_once_and_from_then_on(
    caplog,
) -> None:
    trainer = TrainerProcess("trainer", device=["a"])
    engines = [EngineProcess(f"engine-{n}", device=["a"] * 2) for n in range(2)]
    engines[1].outcomes["receive"] = [REFUSED]

    synced(trainer, engines, times=2)

    assert trainer.log == [("device",), ("share", "gpu"), ("share", "cpu"), ("share", "cpu")]
    assert engines[0].steps() == ["device", "receive", "load", "receive", "load"]
    assert engines[1].steps() == ["device", "receive", "receive", "load", "receive", "load"]
    assert caplog.messages == [
        "trainer and engines are on one GPU, and weights go by memory of the CPU from now on: "
        "cudaIpcOpenMemHandle failed with CUDA's error 801. That is slower, and changes nothing "
        "else"
    ]


def test_a_trainer_that_can_share_nothing_on_the_gpu_is_asked_for_it_once(caplog) -> None:
    trainer = TrainerProcess("trainer", device=["a"])
    trainer.refusal = "the GPU's memory cannot be shared: error 801."
    engines = [EngineProcess("engine-0", device=["a"])]

    synced(trainer, engines, times=2)

    assert trainer.log == [("device",), ("share", "gpu"), ("share", "cpu")]
    assert engines[0].steps() == ["device", "receive", "load", "receive", "load"]
    assert len(caplog.messages) == 1
    assert "from now on: the GPU's memory cannot be shared: error 801." in caplog.text


def test_a_trainer_whose_weights_leave_the_gpu_shares_none_there() -> None:
    trainer = TrainerProcess("trainer", device=["a"])
    engines = [EngineProcess("engine-0", device=["a"])]

    synced(trainer, engines, offloads=True)

    assert trainer.log == [("share", "cpu")]
    assert engines[0].steps() == ["receive", "load"]


def test_in_one_process_weights_are_handed_over() -> None:
    class Engine:
        def load_weights(self, snapshot):
            self.snapshot = snapshot

    engine, snapshot = Engine(), WeightSnapshot(version=3, tensors={})

    assert IpcSync([engine]).sync(lambda: snapshot) == 3
    assert engine.snapshot is snapshot
