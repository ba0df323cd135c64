"""The two ends of a sync by a process group, in one process; over gloo, on the loopback."""

from __future__ import annotations

import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import distributed
from transformers import AutoModelForCausalLM
from trinity.common.ports import WeightSnapshot
from trinity.common.ports.weights import TensorStream
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError, WorkerWaitsError
from trinity.runtime.ray import address, engine_worker, weight_transfer
from trinity.runtime.ray.weight_transfer import WeightReceiver, WeightSender
from trinity.synchronizer.channel import Channel, GroupSpec, TransferError
from trinity_testing.tiny import make_tiny_model

pytestmark = pytest.mark.skipif(
    not distributed.is_gloo_available(), reason="this build of torch has no gloo"
)


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    for module in (address, weight_transfer):
        monkeypatch.setattr(module, "node_address", lambda: "127.0.0.1")


class Trainer:
    version = 0

    def snapshot(self):
        self.version += 1
        weight = torch.full((1000,), float(self.version))
        return WeightSnapshot(version=self.version, tensors={"weight": weight})


def received_by(way, manifest):
    """Return what came, as an engine has it that loads nothing before it has all."""
    return dict(way.receive(manifest).tensors)


def joined(ways, endpoint, *, number=1, timeout_s=10.0):
    """Let all of them join a group."""
    specs = [
        GroupSpec(
            endpoint=endpoint, group=f"weights/{number}", rank=rank, size=len(ways), backend="gloo",
            meet_s=10.0, load_s=10.0, timeout_s=timeout_s, bucket_bytes=512,
        )
        for rank in range(len(ways))
    ]  # fmt: skip
    with ThreadPoolExecutor(len(ways)) as pool:
        list(pool.map(lambda way, spec: way.join(spec), ways, specs))


def test_each_sync_brings_the_weights_as_they_are_to_whoever_is_in_the_group() -> None:
    trainer = Trainer()
    out, ways = WeightSender(trainer.snapshot, timeout_s=10.0), [WeightReceiver(), WeightReceiver()]
    joined([out, *ways], out.host_rendezvous())
    with ThreadPoolExecutor(2) as pool:
        for version in (1, 2):
            manifest = out.pack()
            received = [pool.submit(received_by, way, manifest) for way in ways]
            out.send()
            assert [one.result(10)["weight"][7] for one in received] == [version, version]
        joined([out, ways[1]], out.host_rendezvous(), number=2)  # the other one is gone
        received = pool.submit(received_by, ways[1], out.pack())
        out.send()
        assert received.result(10)["weight"][7] == 3.0
    assert out.kept().payload.snapshot().tensors["weight"][7] == 3.0


def test_an_error_of_nccl_can_name_the_interface_of_this_process(monkeypatch) -> None:
    told = []
    monkeypatch.setattr(Channel, "meet", lambda _, store, *, interface: told.append(interface))
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=eth7")
    out = WeightSender(Trainer().snapshot, timeout_s=10.0)

    joined([out], out.host_rendezvous())

    assert told == ["=eth7"]


def test_who_ends_its_replies_first_is_waited_for_longer_than_for_a_bucket() -> None:
    out, ways = (
        WeightSender(Trainer().snapshot, timeout_s=10.0),
        [WeightReceiver(), WeightReceiver()],
    )
    joined([out, *ways], out.host_rendezvous(), timeout_s=0.2)
    with ThreadPoolExecutor(3) as pool:
        manifest = out.pack()
        first = pool.submit(received_by, ways[0], manifest)
        sent = pool.submit(out.send)
        time.sleep(1.5)  # more than a bucket's limit, and a look at it
        assert received_by(ways[1], manifest)["weight"][7] == 1.0
        assert first.result(10)["weight"][7] == 1.0
        sent.result(10)


def test_who_waits_for_one_that_never_comes_leaves_when_it_is_told_to() -> None:
    out, way = WeightSender(Trainer().snapshot, timeout_s=10.0), WeightReceiver()
    joined([out, way], out.host_rendezvous())
    manifest = out.pack()
    threading.Timer(0.3, way.leave).start()

    with pytest.raises(TransferError, match="this process has left the group"):
        received_by(way, manifest)  # and nobody sends

    way.leave()
    with pytest.raises(TransferError, match="this process is in no group"):
        way.receive(manifest)


def test_who_is_told_late_to_leave_a_group_stays_in_the_next_one() -> None:
    out, way = WeightSender(Trainer().snapshot, timeout_s=10.0), WeightReceiver()
    joined([out, way], out.host_rendezvous(), number=2)

    out.leave("weights/1")  # said while that was sent, and heard only now

    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(received_by, way, out.pack())
        out.send()
        assert received.result(10)["weight"][7] == 1.0


def test_who_is_told_to_leave_before_it_comes_waits_for_nobody() -> None:
    out, way = WeightSender(Trainer().snapshot, timeout_s=10.0), WeightReceiver()
    way.leave("weights/5")
    never = GroupSpec(
        endpoint=out.host_rendezvous(), group="weights/5", rank=1, size=2, backend="gloo",
        meet_s=60.0, load_s=10.0, timeout_s=10.0, bucket_bytes=512,
    )  # fmt: skip

    with pytest.raises(TransferError, match="this process has left the group"):
        way.join(never)

    joined([out, way], out.host_rendezvous(), number=6)


class GroupOfGpus:
    """What torch makes where there are GPUs, as far as it reads the environment."""

    class Options:
        _timeout = None

    def __init__(self, store, rank, size, options) -> None:
        self.has_watchdog = os.environ.get(WAITS_ITSELF) != "1"


WAITS_ITSELF = "TORCH_NCCL_BLOCKING_WAIT"


@pytest.mark.parametrize("before", [None, "0"])
def test_a_group_of_gpus_has_no_thread_that_ends_the_process_when_a_member_is_lost(
    monkeypatch, before
) -> None:
    """Torch's own one ends those that waited, the trainer among them, a minute after its limit."""
    monkeypatch.setattr(distributed, "ProcessGroupNCCL", GroupOfGpus, raising=False)
    monkeypatch.setattr(Channel, "_connect", lambda *_: None)  # there is no GPU to connect
    monkeypatch.delenv(WAITS_ITSELF, raising=False)
    if before is not None:
        monkeypatch.setenv(WAITS_ITSELF, before)
    out = WeightSender(Trainer().snapshot, timeout_s=10.0)
    alone = GroupSpec(
        endpoint=out.host_rendezvous(), group="weights/1", rank=0, size=1, backend="nccl",
        meet_s=10.0, load_s=10.0, timeout_s=10.0, bucket_bytes=512,
    )  # fmt: skip

    out.join(alone)

    assert not out._joined()._group.has_watchdog
    assert os.environ.get(WAITS_ITSELF) == before  # groups that others make are watched as ever


def test_before_a_first_sync_there_is_no_copy() -> None:
    with pytest.raises(ModelError, match="has packed no weights yet"):
        WeightSender(Trainer().snapshot, timeout_s=1.0).kept()


def test_an_engine_that_got_a_part_answers_nobody_until_it_has_all_of_others(
    workers, monkeypatch
) -> None:
    monkeypatch.setattr(engine_worker, "_GIVEN_S", 0.1)
    worker = workers.engine_worker().part
    worker.open("a")
    worker.load_weights(None)
    out = WeightSender(Trainer().snapshot, timeout_s=1.0)

    with pytest.raises(TransferError):
        worker.weights("receive", out.pack())

    for asked in (
        lambda: worker.exchange("a", 0, [], 0.0),
        lambda: worker.open("b"),
        worker.version,
    ):
        with pytest.raises(
            WorkerWaitsError, match=r"^engine-0 waits: new weights did not reach it"
        ):
            asked()
    worker.load_weights(out.kept().payload)
    worker.serve()
    assert worker.version() == 1
    worker.open("b")


def test_an_embedded_engine_loads_buckets_as_they_come_and_answers_nobody_with_a_part_of_them(
    workers, tmp_path
) -> None:
    path = str(make_tiny_model(tmp_path / "model"))
    options = {"max_model_len": 32, "dtype": "bfloat16", "device": "cpu"}
    worker = workers.engine_worker(TransformersEngine(model_path=path, **options)).part
    module = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    trained = {name: one.detach() * 3 + 1e-3 for name, one in module.named_parameters()}
    snapshot = WeightSnapshot(version=4, tensors=trained)
    out = WeightSender(
        lambda: TensorStream.rounded(snapshot, "bfloat16", lambda _, tensor: tensor), timeout_s=10.0
    )
    joined([out, worker._weight_receiver], out.host_rendezvous())

    def is_loaded():
        found = worker._engine._module.state_dict()
        return all(torch.equal(found[name], one.bfloat16()) for name, one in trained.items())

    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(worker.weights, "receive", out.pack())
        out.send()
        assert received.result(10) == 4
        assert is_loaded()
        snapshot = WeightSnapshot(version=5, tensors={n: one * 2 for n, one in trained.items()})
        trained = snapshot.tensors
        received = pool.submit(worker.weights, "receive", out.pack())
        manifest, tensors = out._staging.packed
        first = dict(list(tensors.items())[:-1])
        with pytest.raises(KeyError):
            out._joined().send(manifest, first)
        worker.weights("leave", "weights/1")
        with pytest.raises(TransferError, match=r"the broadcast failed|has left the group"):
            received.result(10)
    assert not worker._serves.is_set()
    assert not is_loaded()

    out.pack()
    worker.load_weights(out.kept().payload)

    assert is_loaded()


def test_an_engine_that_says_another_version_than_it_was_given_answers_nobody(
    workers, keyed_engine
) -> None:
    class Forgetful(keyed_engine):
        def load_weights(self, snapshot):
            """Forget to set the version."""

    worker = workers.engine_worker(Forgetful()).part
    sender = WeightSender(Trainer().snapshot, timeout_s=1.0)
    told = sender.share(["cpu"])

    with pytest.raises(ModelError, match="given the weights of version 1 and says that it has"):
        worker.weights("receive", told)

    assert not worker._serves.is_set()


class OfGpu:
    """What the runtime asks of a tensor on a GPU."""

    def __init__(self, *, is_cuda):
        self.is_cuda = is_cuda


@pytest.mark.parametrize("is_cuda", [True, False])
def test_a_gpu_gets_its_room_back_once_nobody_holds_what_was_copied_there(
    workers, keyed_engine, monkeypatch, is_cuda
) -> None:
    held, freed = [], []

    class Loading(keyed_engine):
        version = 0

        def load_weights(self, snapshot):
            self.version = snapshot.version

    def receive(told):
        tensor = OfGpu(is_cuda=is_cuda)
        held.append(weakref.ref(tensor))
        return WeightSnapshot(version=1, tensors={"weight": tensor})

    monkeypatch.setattr(weight_transfer, "open_weights", receive)
    monkeypatch.setattr(weight_transfer, "empty_cache", lambda: freed.append(held[-1]()))
    worker = workers.engine_worker(Loading()).part
    told = WeightSender(Trainer().snapshot, timeout_s=1.0).share([])

    for _ in range(2):
        worker.weights("receive", told)

    assert freed == ([None, None] if is_cuda else [])
