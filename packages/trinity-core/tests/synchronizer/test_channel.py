"""Bytes go from one process to the others over gloo, whole or not at all, and nobody waits on."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from types import SimpleNamespace

import pytest
import torch
from torch import distributed
from trinity.common.ports import WeightSnapshot
from trinity.synchronizer import channel as channel_module
from trinity.synchronizer.channel import Channel, GroupSpec, TransferError
from trinity.synchronizer.staging import StagingBuffer

pytestmark = pytest.mark.skipif(
    not distributed.is_gloo_available(), reason="this build of torch has no gloo"
)


def invited(place, *, rank, size, **changes):
    return GroupSpec(
        **{
            "endpoint": str(place), "group": "weights/1", "rank": rank, "size": size,
            "backend": "gloo", "meet_s": 20.0, "load_s": 20.0, "timeout_s": 20.0,
            "bucket_bytes": 1 << 16,
        }
        | changes
    )  # fmt: skip


def store_of(spec):
    return distributed.FileStore(spec.endpoint, spec.size)


def joined(spec):
    channel = Channel(spec)
    channel.meet(store_of(spec))
    return channel


def an_outbox(*, num_floats=100_000, version=3):
    staging = StagingBuffer()
    flat = torch.arange(float(num_floats))
    parts = {f"w{n}": part for n, part in enumerate(flat.split(num_floats // 10))}
    tensors = parts | {"b": torch.ones(3, dtype=torch.bfloat16)}
    return staging, staging.pack(WeightSnapshot(version=version, tensors=tensors))


def read(snapshot):
    """Read each tensor once; what it is was known before."""
    for name, tensor in snapshot.tensors.items():
        like = snapshot.like[name]
        assert (like.shape, like.dtype) == (tensor.shape, tensor.dtype)
        yield name, tensor


def receive(spec, manifest, told):
    """Tell what another process got, or why it did not."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)  # the threads of the process that was forked are not here
    try:
        channel = joined(spec)
        told.send("joined")
        snapshot = channel.receive(manifest)
        sums = {name: (one.double().sum().item(), one.dtype) for name, one in read(snapshot)}
        told.send((snapshot.version, sums))
    except TransferError as error:
        told.send(str(error))


@pytest.fixture
def others(monkeypatch):
    """Return a function that starts the other processes of a group."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    started = []

    def start(specs, manifest):
        context = get_context("fork")  # they need no more than this one has imported
        heard = []
        for spec in specs:
            here, there = context.Pipe()
            process = context.Process(target=receive, args=(spec, manifest, there))
            process.start()
            started.append(process)
            heard.append((process, here))
        return heard

    yield start
    for process in started:
        process.kill()
        process.join(10)


def told_by(pipe):
    assert pipe.poll(30)
    return pipe.recv()


def test_all_get_the_weights_in_buckets(tmp_path, others) -> None:
    staging, manifest = an_outbox()
    place = tmp_path / "store"
    heard = others([invited(place, rank=rank, size=3) for rank in (1, 2)], manifest)
    first = invited(place, rank=0, size=3)

    channel = joined(first)
    channel.send(*staging.packed)

    # ten times 40,000 bytes in buckets of 65,536; 10,000 numbers from n * 10,000 on add up to this
    sums = {f"w{n}": (n * 1e8 + 49_995_000.0, torch.float32) for n in range(10)}
    wanted = (3, sums | {"b": (3.0, torch.bfloat16)})
    for process, pipe in heard:
        assert told_by(pipe) == "joined"
        assert told_by(pipe) == wanted
        process.join(10)
        assert process.exitcode == 0  # and nothing that it left behind keeps it


def test_weights_that_are_not_those_announced_are_not_taken(tmp_path, others) -> None:
    staging, manifest = an_outbox()
    place = tmp_path / "store"
    other = replace(manifest, version=4)
    ((_, pipe),) = others([invited(place, rank=1, size=2, bucket_bytes=1 << 20)], other)
    first = invited(place, rank=0, size=2, bucket_bytes=1 << 20)  # one bucket

    joined(first).send(*staging.packed)

    assert told_by(pipe) == "joined"
    assert told_by(pipe) == (
        "the received weights are not those of policy version 4: their checksum differs."
    )


def test_a_member_that_does_not_come_is_not_waited_for_longer_than_agreed(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    alone = invited(tmp_path / "store", rank=0, size=2, meet_s=0.5)
    began = time.monotonic()

    with pytest.raises(TransferError, match="rendezvous of the 2 processes of weights/1 timed out"):
        joined(alone)

    assert time.monotonic() - began < 10


def test_who_waits_for_the_others_can_be_told_to_leave(tmp_path) -> None:
    alone = invited(tmp_path / "store", rank=0, size=2, meet_s=60.0)
    channel, began = Channel(alone), time.monotonic()
    threading.Timer(0.2, channel.leave).start()

    with pytest.raises(TransferError, match="this process has left the group"):
        channel.meet(store_of(alone))

    assert time.monotonic() - began < 10


class Nccl:
    """A group whose first broadcast connects the members, as soon as they reach each other."""

    def __init__(self, failure=None, *, is_done=True):
        self.failure, self.is_done = failure, is_done
        self.reaches, self.is_aborted = threading.Event(), threading.Event()
        self.streams = []

    def broadcast(self, tensors, options):
        self.streams.append(torch.cuda.current_stream())
        assert self.reaches.wait(30)
        if self.failure is not None:
            raise self.failure
        future = SimpleNamespace(add_done_callback=lambda told: told(None))
        return SimpleNamespace(
            get_future=lambda: future,
            is_completed=lambda: self.is_done or self.is_aborted.is_set(),
            wait=lambda limit: True,
        )

    def abort(self):
        self.is_aborted.set()


@pytest.fixture
def nccl(monkeypatch, tmp_path):
    """Return a function: a group of NCCL -> the channel of one process that is to meet in it."""
    of_thread = threading.local()  # as in CUDA
    of_thread.stream = "stream 7 of GPU 1"

    @contextmanager
    def stream(one):
        of_thread.stream = one
        yield

    def make(group):
        monkeypatch.setattr(channel_module, "_group", lambda store, spec: group)
        monkeypatch.setattr(Channel, "_empty", lambda _, size: torch.zeros(size + 16))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: vars(of_thread).get("stream"))
        monkeypatch.setattr(torch.cuda, "stream", stream)
        return Channel(invited(tmp_path / "store", rank=0, size=1, backend="nccl"))

    return make


def test_processes_have_met_once_nccl_has_connected_them(nccl) -> None:
    group = Nccl()
    channel = nccl(group)
    threading.Timer(0.2, group.reaches.set).start()

    channel.meet(store_of(channel._spec))

    assert group.reaches.is_set()
    assert group.streams == ["stream 7 of GPU 1"]  # that of who met


def test_an_nccl_that_connects_nobody_has_a_limit(nccl, monkeypatch) -> None:
    """As where the network interface leads nowhere."""
    monkeypatch.setattr(channel_module, "CONNECT_S", 0.2)
    group = Nccl()
    channel, began = nccl(group), time.monotonic()

    with pytest.raises(TransferError) as refused:
        channel.meet(store_of(channel._spec), interface="=eth7")

    assert time.monotonic() - began < 10
    assert str(refused.value) == (
        "NCCL did not connect the 1 processes of weights/1 within 0 s "
        "(NCCL_SOCKET_IFNAME is '=eth7'; NCCL_DEBUG=INFO says more)."
    )
    group.reaches.set()


def test_who_waits_for_nccl_can_be_told_to_leave_and_aborts_what_connects_later(nccl) -> None:
    """As where another member was lost meanwhile."""
    group = Nccl(is_done=False)
    channel, began = nccl(group), time.monotonic()
    threading.Timer(0.2, channel.leave).start()

    with pytest.raises(TransferError, match="this process has left the group"):
        channel.meet(store_of(channel._spec))

    assert time.monotonic() - began < 10
    assert not group.is_aborted.is_set()  # nothing is connected yet
    group.reaches.set()
    assert group.is_aborted.wait(10)


def test_why_nccl_connects_nobody_is_told(nccl) -> None:
    group = Nccl(RuntimeError("NCCL error: unhandled system error"))
    group.reaches.set()
    channel = nccl(group)

    with pytest.raises(TransferError, match="the broadcast failed: NCCL error: unhandled system"):
        channel.meet(store_of(channel._spec))


def test_an_error_of_any_kind_while_nccl_connects_is_told_at_once(nccl, monkeypatch) -> None:
    """As where torch's API is another than ours of it."""
    monkeypatch.setattr(channel_module, "CONNECT_S", 5.0)
    group = Nccl(TypeError("broadcast(): incompatible function arguments"))
    group.reaches.set()
    channel = nccl(group)

    with pytest.raises(TypeError, match="incompatible function arguments"):
        channel.meet(store_of(channel._spec))


def test_a_gpu_that_fails_before_nccl_connects_is_told_as_a_failed_transfer(
    nccl, monkeypatch
) -> None:
    def lost():
        raise RuntimeError("CUDA error: device-side assert triggered")

    channel = nccl(Nccl())
    monkeypatch.setattr(torch.cuda, "current_stream", lost)

    with pytest.raises(TransferError, match="the broadcast failed: CUDA error: device-side assert"):
        channel.meet(store_of(channel._spec))


@pytest.mark.parametrize(
    "how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.acceptance)]
)
def test_one_that_is_lost_on_the_way_breaks_it_off_for_the_others(tmp_path, others, how) -> None:
    # 40 MB: more than the sockets between hold, so that somebody is in the midst of it
    staging, manifest = an_outbox(num_floats=10_000_000)
    place = tmp_path / "store"
    limits = {"load_s": 2.0, "timeout_s": 2.0, "bucket_bytes": 32 << 20}
    heard = others([invited(place, rank=rank, size=3, **limits) for rank in (1, 2)], manifest)
    first = invited(place, rank=0, size=3, **limits)
    channel = joined(first)
    (lost, pipe), (_, other) = heard
    assert {told_by(pipe), told_by(other)} == {"joined"}
    os.kill(lost.pid, how)
    began = time.monotonic()

    with pytest.raises(TransferError, match=r"the broadcast failed|timed out after 2 s: 2 joined"):
        channel.send(*staging.packed)

    assert time.monotonic() - began < 10
    with pytest.raises(TransferError, match="this process has left the group"):
        channel.send(*staging.packed)
    assert isinstance(told_by(other), str | tuple)  # it had all, or heard that it broke off
