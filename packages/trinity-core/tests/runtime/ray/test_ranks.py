"""The trainer's ranks as the driver calls them: all at once, and none is waited for without end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trinity.common.config import Config
from trinity.errors import ConfigError, DataError, ModelError, WorkerLostError
from trinity.runtime.preflight import refuse_local
from trinity.runtime.ray import remote_trainer
from trinity.runtime.ray.build import _RayBuilder
from trinity.runtime.ray.gpu_allocation import GpuShares
from trinity.runtime.ray.remote_trainer import RemoteTrainer

NEVER = object()


class Clock:
    """Time that passes while somebody waits for Ray."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


class Call:
    """A call whose outcome is known: a value, an error, or NEVER."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.ref = self

    def result(self, *, timeout_s=None):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class Rank:
    """A worker that answers each method as it is told."""

    lost = None  # as the health monitor says

    def __init__(self, name, **outcomes):
        self.name = name
        self.outcomes = outcomes
        self.calls = []
        self.is_killed = False

    def call(self, method, *args):
        return self.start(method, *args).result()

    def start(self, method, *args, **kwargs):
        self.calls.append((method, *args, *kwargs.values()))
        return Call(self.outcomes.get(method))

    def start_with_payload(self, method):
        return self.start(method), f"what {self.name} holds"

    def kill(self):
        self.is_killed = True


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Let Ray's waiting take no time, and the clock say that it took some."""
    clock = Clock()

    def wait(refs, *, num_returns=1, timeout):
        ready = [ref for ref in refs if ref.outcome is not NEVER]
        if not ready:
            clock.now += timeout
        return ready[:num_returns], []

    def put(packet):
        return [len(packet), "experiences by reference"]

    monkeypatch.setattr(remote_trainer, "ray", SimpleNamespace(wait=wait, put=put))
    monkeypatch.setattr(remote_trainer, "time", clock)
    monkeypatch.setattr(remote_trainer, "check_ray", lambda: None)
    return clock


def test_every_rank_gets_the_same_reference_and_the_first_one_tells_the_metrics() -> None:
    workers = [Rank(f"trainer-{n}", train_step={"loss": float(n)}) for n in range(3)]

    metrics = RemoteTrainer(workers).train_step([], step=4)

    assert metrics == {"loss": 0.0}
    packet = [0, "experiences by reference"]
    assert [worker.calls for worker in workers] == [[("train_step", packet, 4)]] * 3


def test_what_rank_0_cannot_do_with_the_weights_that_all_gave_it_is_told_and_ends_nobody() -> None:
    fault = ModelError("memory for the weights is lacking")
    workers = [Rank("trainer-0", weights=fault), Rank("trainer-1")]

    with pytest.raises(ModelError, match="memory for the weights is lacking"):
        RemoteTrainer(workers).sender.pack()

    assert [worker.is_killed for worker in workers] == [False, False]


def test_the_first_one_says_where_all_of_them_meet() -> None:
    workers = [Rank("trainer-0", host_rendezvous="10.0.0.1:77"), Rank("trainer-1")]

    RemoteTrainer(workers).start_training()

    assert workers[0].calls == [("host_rendezvous",), ("start_training", "10.0.0.1:77")]
    assert workers[1].calls == [("start_training", "10.0.0.1:77")]


@pytest.mark.parametrize(("share", "waits"), [(0.0, False), (1.0, False), (0.5, True)])
def test_one_that_shares_a_gpu_makes_its_trainer_once_the_engine_has_its_memory(
    share, waits
) -> None:
    """vLLM counts what others take while it starts, and gets less of the GPU, or none."""
    started = {}
    builder = SimpleNamespace(
        _shares=GpuShares(share, share),
        _workers=SimpleNamespace(start=lambda name, _, **options: started.update({name: options})),
    )

    _RayBuilder._make_trainer(builder, total_steps=3)

    assert started["trainer"]["waits"] is waits


def test_one_alone_meets_nobody_before_it_makes_its_trainer() -> None:
    worker = Rank("trainer")

    RemoteTrainer([worker]).start_training()

    assert worker.calls == [("start_training", "")]


def test_the_weights_are_the_first_ones_and_the_others_take_part() -> None:
    workers = [Rank("trainer-0", snapshot=7), Rank("trainer-1")]

    snapshot = RemoteTrainer(workers).snapshot(copy=False)

    assert (snapshot.version, snapshot.tensors.ref) == (7, "what trainer-0 holds")
    assert workers[1].calls == [("snapshot_beside",)]


def test_a_rank_that_is_lost_ends_all_and_is_the_one_that_is_named() -> None:
    """The others hear first that its socket was closed, and say so."""
    broken = RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer")
    lost = WorkerLostError("trainer-1", cause="it ended or was killed", is_final=True)
    workers = [Rank("trainer-0", save=broken), Rank("trainer-1", save=lost)]

    with pytest.raises(WorkerLostError, match="the process of trainer-1 was lost"):
        RemoteTrainer(workers).save(SimpleNamespace(absolute=lambda: "there"))

    assert all(worker.is_killed for worker in workers)


def test_ranks_that_did_not_reach_each_other_are_no_error_of_the_step() -> None:
    late = RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms")
    workers = [Rank(f"trainer-{n}", train_step=late) for n in range(2)]

    with pytest.raises(WorkerLostError, match=r"trainer-0 was lost: RuntimeError: .*Timed out"):
        RemoteTrainer(workers).train_step([], step=1)


def test_a_machine_that_is_gone_is_named_before_ray_knows_it(clock) -> None:
    """Its rank does not answer, while the other one's connection broke at once."""
    broken = RuntimeError("[gloo/transport/tcp/pair.cc] Connection reset by peer")
    workers = [Rank("trainer-0", train_step=broken), Rank("trainer-1", train_step=NEVER)]

    with pytest.raises(WorkerLostError, match="trainer-1 was lost: it does not answer, and the"):
        RemoteTrainer(workers).train_step([], step=1)


def test_a_full_disk_is_told_as_the_rank_that_writes_met_it() -> None:
    full, heard = OSError(28, "No space left on device"), DataError("rank 0 failed")
    workers = [Rank("trainer-0", save=full), Rank("trainer-1", save=heard)]

    with pytest.raises(OSError, match="No space left"):
        RemoteTrainer(workers).save(SimpleNamespace(absolute=lambda: "there"))

    assert not any(worker.is_killed for worker in workers)


def test_an_error_that_all_have_is_the_runs_and_ends_no_rank() -> None:
    workers = [Rank(f"trainer-{n}", train_step=DataError("no rewards")) for n in range(2)]

    with pytest.raises(DataError, match="no rewards"):
        RemoteTrainer(workers).train_step([], step=1)

    assert not any(worker.is_killed for worker in workers)


@pytest.mark.parametrize("other", [None, NEVER])
def test_a_rank_that_failed_alone_is_out_of_step_with_the_others(other, clock) -> None:
    workers = [Rank("trainer-0", load=other), Rank("trainer-1", load=OSError("no such disk"))]

    with pytest.raises(WorkerLostError, match="trainer-1 was lost: OSError: no such disk"):
        RemoteTrainer(workers).load(SimpleNamespace(absolute=lambda: "there"))

    assert all(worker.is_killed for worker in workers)
    assert clock.now <= remote_trainer.GRACE_S + 2


@pytest.mark.parametrize("method", ["host_rendezvous", "start_training"])
def test_a_rank_that_gives_no_heartbeat_ends_the_others_whatever_they_do(method) -> None:
    workers = [Rank(f"trainer-{n}", **{method: NEVER}) for n in range(2)]
    workers[1].lost = WorkerLostError("trainer-1", cause="it is there and has not answered for 9 s")

    with pytest.raises(WorkerLostError, match="trainer-1 was lost: it is there and has not"):
        RemoteTrainer(workers).start_training()

    assert all(worker.is_killed for worker in workers)


@pytest.mark.parametrize("key", ["num_ranks", "ulysses_sequence_parallel_size"])
def test_several_ranks_in_one_process_are_refused_in_one_line(key) -> None:
    asked = {"num_ranks": 0, "ulysses_sequence_parallel_size": 1, key: 2}
    stage = Config(trainer=asked)

    refuse_local([stage], local=False)
    with pytest.raises(ConfigError) as refused:
        refuse_local([stage], local=True)

    assert str(refused.value) == (
        f"trainer.{key} is 2, and here all parts share one process: run over Ray, without --local."
    )
