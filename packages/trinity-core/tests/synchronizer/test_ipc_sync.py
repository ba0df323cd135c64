"""Who maps the trainer's weights, who is done without, and what that is to the others."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.common.ports import WeightSnapshot
from trinity.errors import ModelError, WorkerLostError
from trinity.synchronizer import ipc_sync
from trinity.synchronizer.channel import TransferError
from trinity.synchronizer.cuda_ipc import HandleError
from trinity.synchronizer.ipc_sync import IpcSync

SILENT = TimeoutError()  # there is no answer, however long one waits
GONE = TransferError("the shared weights of process 7 are gone.")


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr("trinity.synchronizer.direct_sync.LEAST_LOAD_S", 0.0)
    monkeypatch.setattr(ipc_sync, "GRACE_S", 0.0)


def synced(trainer, engines, *, times=1, offloads=False, sleeps=False):
    config = Config()
    config.synchronizer.sync_timeout = 0.001
    config.trainer.param_offload = offloads
    config.explorer.rollout_model.enable_sleep_mode = sleeps
    sync = IpcSync(engines, sender=trainer, config=config)
    for _ in range(times):
        version = sync.sync(lambda: pytest.fail("weights go through no store"))
    return version


def test_each_engine_maps_what_is_shared_and_nobody_meets(a_trainer, two_engines) -> None:
    trainer, engines = a_trainer(), two_engines()

    assert synced(trainer, engines) == 7

    assert trainer.log == [("device",), ("share", "cpu")]
    assert [engine.steps() for engine in engines] == [["receive", "loaded"]] * 2
    assert [engine.log[0][1].manifest.version for engine in engines] == [7, 7]


def test_an_engine_that_is_away_is_not_waited_for(a_trainer, two_engines) -> None:
    engines = two_engines()
    engines[0].process = None

    synced(a_trainer(), engines)

    assert engines[0].steps() == []
    assert engines[1].steps() == ["receive", "loaded"]


@pytest.mark.parametrize(
    ("outcome", "last"),
    [(WorkerLostError("engine-1", cause="it ended or was killed"), "lost"), (SILENT, "end")],
)
def test_one_that_is_lost_or_silent_is_done_without_and_the_others_hear_nothing_of_it(
    outcome, last, caplog, a_trainer, two_engines
) -> None:
    trainer, engines = a_trainer(), two_engines(receive=[outcome])

    synced(trainer, engines)

    assert engines[0].steps() == ["receive", "loaded"]
    assert engines[1].steps() == ["receive", last]
    assert trainer.steps() == ["device", "share"]
    assert "weight sync without engine-1" in caplog.text


def test_one_that_finds_none_tries_once_more_and_the_trainer_is_asked_whether_it_is_there(
    a_trainer, two_engines
) -> None:
    trainer, engines = a_trainer(), two_engines(receive=[GONE])

    synced(trainer, engines)

    assert trainer.steps() == ["device", "share", "device"]
    assert engines[0].steps() == ["receive", "loaded"]
    assert engines[1].steps() == ["receive", "receive", "loaded"]


def test_one_that_never_finds_any_is_ended_and_said(caplog, a_trainer, two_engines) -> None:
    engines = two_engines(receive=[GONE, GONE])

    synced(a_trainer(), engines)

    assert engines[1].steps() == ["receive", "receive", "end"]
    assert (
        "weight sync without engine-1: it did not receive all weights in 2 attempts (the "
        "shared weights of process 7 are gone). The other engines"
    ) in caplog.text


def test_a_trainer_that_is_lost_before_all_have_them_is_the_runs_loss(
    a_trainer, two_engines
) -> None:
    lost = WorkerLostError("trainer", cause="it ended or was killed", is_final=True)
    engines = two_engines(receive=[GONE])

    with pytest.raises(WorkerLostError, match="trainer was lost"):
        synced(a_trainer(device=["", lost]), engines)

    assert engines[1].steps() == ["receive"]


def test_a_trainer_that_is_silent_is_ended_and_the_run_goes_back(a_trainer, two_engines) -> None:
    trainer = a_trainer(device=["", SILENT])

    with pytest.raises(WorkerLostError, match="it did not return from a weight sync"):
        synced(trainer, two_engines(receive=[GONE]))

    assert trainer.is_ended


def test_an_engine_that_cannot_have_them_ends_the_run_in_its_words(a_trainer, two_engines) -> None:
    refused = ModelError("this process is on another machine than the trainer.")

    with pytest.raises(ModelError, match="is on another machine than the trainer"):
        synced(a_trainer(), two_engines(receive=[refused]))


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
def test_only_engines_on_the_trainers_gpu_have_the_weights_there(
    devices, where, a_trainer, an_engine
) -> None:
    trainer = a_trainer(device=devices[:1])
    engines = [an_engine(f"engine-{n}", device=devices[n + 1 : n + 2]) for n in range(2)]

    synced(trainer, engines)

    assert trainer.log == [("device",), ("share", *where)]
    assert [engine.steps()[-2:] for engine in engines] == [["receive", "loaded"]] * 2


REFUSED = HandleError("cudaIpcOpenMemHandle failed with CUDA's error 801.")


def test_an_engine_that_may_open_nothing_on_the_gpu_has_the_cpus_at_once_and_from_then_on(
    caplog, a_trainer, an_engine
) -> None:
    trainer = a_trainer(device=["a"])
    engines = [an_engine(f"engine-{n}", device=["a"] * 2) for n in range(2)]
    engines[1].outcomes["receive"] = [REFUSED]

    synced(trainer, engines, times=2)

    assert trainer.log == [("device",), ("share", "gpu"), ("share", "cpu"), ("share", "cpu")]
    assert engines[0].steps() == ["device", "receive", "loaded", "receive", "loaded"]
    assert engines[1].steps() == ["device", "receive", "receive", "loaded", "receive", "loaded"]
    assert caplog.messages == [
        "trainer and engines share a GPU, but the weight sync uses CPU memory from now on: "
        "cudaIpcOpenMemHandle failed with CUDA's error 801. It is slower; results are the same"
    ]


def test_a_trainer_that_can_share_nothing_on_the_gpu_is_asked_for_it_once(
    caplog, a_trainer, an_engine
) -> None:
    trainer = a_trainer(device=["a"])
    trainer.refusal = "the GPU's memory cannot be shared: error 801."
    engines = [an_engine("engine-0", device=["a"])]

    synced(trainer, engines, times=2)

    assert trainer.log == [("device",), ("share", "gpu"), ("share", "cpu")]
    assert engines[0].steps() == ["device", "receive", "loaded", "receive", "loaded"]
    assert len(caplog.messages) == 1
    assert "from now on: the GPU's memory cannot be shared: error 801." in caplog.text


@pytest.mark.parametrize("setting", ["offloads", "sleeps"])
def test_no_copy_of_the_weights_stays_on_a_gpu_that_the_other_side_needs_whole(
    setting, a_trainer, an_engine
) -> None:
    """The trainer's weights leave it, or engines and trainer use it in turns."""
    trainer = a_trainer(device=["a"])
    engines = [an_engine("engine-0", device=["a"])]

    synced(trainer, engines, **{setting: True})

    assert trainer.log == [("share", "cpu")]
    assert engines[0].steps() == ["receive", "loaded"]


def test_in_one_process_weights_are_handed_over() -> None:
    class Engine:
        def load_weights(self, snapshot):
            self.snapshot = snapshot

    engine, snapshot = Engine(), WeightSnapshot(version=3, tensors={})

    assert IpcSync([engine]).sync(lambda: snapshot) == 3
    assert engine.snapshot is snapshot
