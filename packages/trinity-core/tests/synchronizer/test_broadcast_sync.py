"""Who is sent weights, who is done without, and that nobody is left with a part of them."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.common.ports import WeightSnapshot
from trinity.errors import ModelError, RayLostError, WorkerLostError
from trinity.synchronizer import broadcast_sync, direct_sync
from trinity.synchronizer.broadcast_sync import GlooSync, NcclSync
from trinity.synchronizer.channel import TransferError

SILENT = TimeoutError()  # there is no answer, however long one waits
BROKEN = TransferError("the broadcast failed")


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr("trinity.synchronizer.direct_sync.LEAST_LOAD_S", 0.0)
    monkeypatch.setattr(broadcast_sync, "MEET_S", 0.0)
    monkeypatch.setattr(broadcast_sync, "GRACE_S", 0.0)


def a_sync(trainer, engines, *, method=GlooSync):
    config = Config()
    config.synchronizer.sync_timeout = 0.001
    config.explorer.rollout_model.weight_sync_buffer_size = 3
    return method(engines, sender=trainer, config=config)


def synced(sync):
    return sync.sync(lambda: pytest.fail("weights go through no store"))


def test_all_join_one_group_and_load_what_they_received(a_trainer, two_engines) -> None:
    trainer, engines = a_trainer(), two_engines()

    assert synced(a_sync(trainer, engines)) == 7

    assert trainer.steps() == ["join", "send"]
    assert [engine.steps() for engine in engines] == [["join", "receive", "loaded"]] * 2
    asked = [process.specs()[0] for process in (trainer, *engines)]
    assert [(one.rank, one.size, one.backend) for one in asked] == [
        (0, 3, "gloo"), (1, 3, "gloo"), (2, 3, "gloo"),
    ]  # fmt: skip
    assert {(one.endpoint, one.group) for one in asked} == {
        ("10.0.0.1:77/secret", "rollout_weight_sync/1")
    }
    assert {one.bucket_bytes for one in asked} == {3 * 1024 * 1024}
    assert [entry[1].version for entry in engines[0].log if entry[0] == "receive"] == [7]


def test_the_group_stays_as_long_as_its_members_do(a_trainer, two_engines) -> None:
    trainer, engines = a_trainer(), two_engines()
    sync = a_sync(trainer, engines)

    synced(sync)
    synced(sync)

    assert trainer.steps() == ["join", "send", "send"]


def test_another_process_of_an_engine_makes_another_group_under_a_name_that_none_had(
    a_trainer, two_engines
) -> None:
    trainer, engines = a_trainer(), two_engines()
    sync = a_sync(trainer, engines)
    synced(sync)
    engines[1].process = 2

    synced(sync)

    assert [one.group for one in engines[0].specs()] == [
        "rollout_weight_sync/1", "rollout_weight_sync/2",
    ]  # fmt: skip


def test_an_engine_that_is_away_is_not_waited_for(a_trainer, two_engines) -> None:
    trainer, engines = a_trainer(), two_engines()
    engines[0].process = None

    synced(a_sync(trainer, engines))

    assert engines[0].steps() == []
    assert (engines[1].specs()[0].rank, engines[1].specs()[0].size) == (1, 2)


def test_one_that_does_not_come_is_named_and_ended_and_the_group_is_made_without_it(
    caplog, a_trainer, two_engines
) -> None:
    trainer = a_trainer(join=[BROKEN])
    engines = two_engines(join=[SILENT])
    engines[0].outcomes["join"] = [BROKEN]  # it waited for the other, as the trainer did

    synced(a_sync(trainer, engines))

    assert caplog.messages == [
        "weight sync without engine-1: it is unresponsive "
        "(sync_timeout is 0 s). The other engines and its replacement get the weights"
    ]
    assert engines[1].steps()[-1] == "end"
    assert engines[0].steps()[-1] == "loaded"
    assert engines[0].specs()[-1].size == 2


def test_one_that_is_killed_on_the_way_is_done_without_and_the_others_are_sent_all_again(
    a_trainer, two_engines
) -> None:
    lost = WorkerLostError("engine-1", cause="it ended or was killed")
    trainer, engines = a_trainer(send=[BROKEN]), two_engines(receive=[lost])
    engines[0].outcomes["receive"] = [BROKEN]

    synced(a_sync(trainer, engines))

    assert engines[1].steps()[-1] == "lost"
    assert [s for s in engines[0].steps() if s != "leave"] == [
        "join", "receive", "join", "receive", "loaded",
    ]  # fmt: skip
    assert engines[0].specs()[-1].group == "rollout_weight_sync/2"


def test_one_that_has_them_whole_loads_them_whatever_became_of_the_others(
    a_trainer, two_engines
) -> None:
    trainer, engines = a_trainer(send=[BROKEN]), two_engines(receive=[SILENT])

    synced(a_sync(trainer, engines))

    assert [s for s in engines[0].steps() if s != "leave"] == ["join", "receive", "loaded"]
    assert engines[1].steps()[-1] == "end"


def test_one_that_never_takes_them_whole_is_ended(caplog, a_trainer, two_engines) -> None:
    engines = two_engines(receive=[BROKEN, BROKEN])

    synced(a_sync(a_trainer(), engines))

    assert engines[0].steps().count("loaded") == 1
    assert engines[1].steps()[-1] == "end"
    assert (
        "weight sync without engine-1: it did not receive all weights in 2 attempts (the "
        "broadcast failed). The other engines"
    ) in caplog.text


def test_where_ray_is_lost_nobody_is_ended_for_it(a_trainer, two_engines) -> None:
    trainer = a_trainer(send=[SILENT])
    engines = two_engines(receive=[RayLostError("Ray is gone")])

    with pytest.raises(RayLostError, match="Ray is gone"):
        synced(a_sync(trainer, engines))

    assert not trainer.is_ended


@pytest.fixture
def limits(monkeypatch):
    """Return the limit and the grace of each step, in seconds, which are not waited for."""
    given = []

    def outcomes(calls, *, limit_s, grace_s, group=""):
        given.append((limit_s, grace_s))
        return direct_sync.outcomes_of(calls, limit_s=0, grace_s=0, group=group)

    monkeypatch.setattr(broadcast_sync, "outcomes_of", outcomes)
    monkeypatch.setattr(broadcast_sync, "MEET_S", 60.0)
    monkeypatch.setattr(broadcast_sync, "GRACE_S", 10.0)
    return given


def test_a_meeting_that_one_is_lost_to_has_its_time_before_the_trainer_is_given_up(
    limits, a_trainer, two_engines
) -> None:
    synced(a_sync(a_trainer(), two_engines()))

    assert limits[0] == (70.0, 70.0)  # to join
    assert limits[1][1] == 10.0  # to send


@pytest.mark.parametrize(("devices", "limit_s"), [(["a", "b"], 190.0), (["a", "a"], 70.0)])
def test_nccl_has_time_to_connect_them_where_it_is_used(
    devices, limit_s, limits, a_trainer, an_engine
) -> None:
    trainer, engine = a_trainer(device=devices[:1]), an_engine("engine-0", device=devices[1:])

    synced(a_sync(trainer, [engine], method=NcclSync))

    assert limits[1] == (limit_s, 70.0)  # after the question which GPU each has


def test_who_waits_for_the_first_that_failed_is_told_to_leave(a_trainer, an_engine, answer) -> None:
    trainer, slow = a_trainer(send=[SILENT]), an_engine("engine-0")
    broken = {an_engine("engine-1"): answer(BROKEN), trainer: answer(SILENT), slow: answer(None)}

    outcomes = direct_sync.outcomes_of(broken, limit_s=60, grace_s=0, group="weights/3")

    assert [type(outcome) for outcome in outcomes.values()] == [
        TransferError, TimeoutError, type(None),
    ]  # fmt: skip
    assert trainer.log == [("leave", "weights/3")]  # and no later one


def test_a_trainer_that_is_lost_is_the_runs_loss(a_trainer, two_engines) -> None:
    lost = WorkerLostError("trainer", cause="it ended or was killed", is_final=True)
    trainer, engines = a_trainer(send=[lost]), two_engines()

    with pytest.raises(WorkerLostError, match="trainer was lost"):
        synced(a_sync(trainer, engines))

    assert not trainer.is_ended


def test_a_trainer_that_does_not_come_back_is_ended_and_the_run_goes_back(
    a_trainer, two_engines
) -> None:
    trainer, engines = a_trainer(send=[SILENT]), two_engines(receive=[BROKEN])

    with pytest.raises(WorkerLostError, match="it did not return from a weight sync"):
        synced(a_sync(trainer, engines))

    assert trainer.is_ended


def test_processes_that_are_there_and_do_not_reach_each_other_end_the_run_in_one_sentence(
    a_trainer, an_engine
) -> None:
    never = [TransferError("the 3 processes did not meet.")] * 9
    trainer = a_trainer(join=never)
    engines = [an_engine(f"engine-{n}", join=never) for n in range(2)]

    with pytest.raises(ModelError) as refused:
        synced(a_sync(trainer, engines))

    assert str(refused.value) == (
        "trainer and engine-0, engine-1 cannot reach each other for a weight sync: the 3 processes "
        "did not meet. Set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to their common network "
        "interface, or set synchronizer.sync_method: memory."
    )
    assert [name for name, *_ in trainer.log].count("join") == 2


def test_an_error_of_an_engine_itself_is_the_runs(a_trainer, two_engines) -> None:
    engines = two_engines(receive=[MemoryError("no worker")])

    with pytest.raises(MemoryError, match="no worker"):
        synced(a_sync(a_trainer(), engines))


@pytest.mark.parametrize(
    ("devices", "backend"),
    [(["a", "b", "c"], "nccl"), (["a", "b", "b"], "gloo"), (["a", "b", ""], "gloo")],
)
def test_nccl_carries_them_only_where_each_process_has_a_gpu_of_its_own(
    devices, backend, a_trainer, an_engine
) -> None:
    trainer = a_trainer(device=devices[:1])
    engines = [an_engine(f"engine-{n}", device=devices[n + 1 : n + 2]) for n in range(2)]

    synced(a_sync(trainer, engines, method=NcclSync))

    assert {one.specs()[0].backend for one in (trainer, *engines)} == {backend}


def test_in_one_process_weights_are_handed_over() -> None:
    class Engine:
        def load_weights(self, snapshot):
            self.snapshot = snapshot

    engine, snapshot = Engine(), WeightSnapshot(version=3, tensors={})

    assert GlooSync([engine]).sync(lambda: snapshot) == 3
    assert engine.snapshot is snapshot
