"""How much CPU memory the process that sends weights holds: counted by the kernel, over gloo."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch
from torch import distributed
from trinity.common.ports import WeightSnapshot
from trinity.common.ports.weights import TensorStream
from trinity.runtime.ray import address, weight_transfer
from trinity.runtime.ray.weight_transfer import WeightReceiver, WeightSender
from trinity.synchronizer.channel import GroupSpec

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(not distributed.is_gloo_available(), reason="this torch has no gloo"),
]
MB = 2**20
TENSOR, NUM, BUCKET = 4 * MB, 48, 32 * MB  # 192 MB of weights


def gathered(version):
    """Return weights of which each tensor is made when it is read, as a sharded trainer's are.

    The first are a few, by which code is loaded and threads begin.
    """
    like = {
        f"layer.{n}": torch.empty(TENSOR // 2, dtype=torch.bfloat16, device="meta")
        for n in range(NUM if version > 1 else 1)
    }
    tensors = TensorStream(like, lambda name: torch.full_like(like[name], version, device="cpu"))
    return WeightSnapshot(version=version, tensors=tensors)


def joined(way, endpoint, *, rank):
    spec = GroupSpec(
        endpoint=endpoint, group="weights/1", rank=rank, size=2, backend="gloo", meet_s=60.0,
        load_s=60.0, timeout_s=60.0, bucket_bytes=BUCKET,
    )  # fmt: skip
    way.join(spec)


def on_loopback():
    for module in (address, weight_transfer):
        module.node_address = lambda: "127.0.0.1"


def held(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def send_thrice(way, on_disk):
    """Send three versions; tell how much memory that took at most, and of which kept copy."""
    on_loopback()
    versions = iter((1, 2, 3, 4))
    sender = WeightSender(lambda: gathered(next(versions)), timeout_s=60.0, on_disk=on_disk)
    way.send(sender.host_rendezvous())
    joined(sender, way.recv(), rank=0)
    for number in range(3):
        if number == 1:
            before = held("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        way.send(sender.pack())
        sender.send()
    peak = held("VmHWM") - before
    kept = sender.kept().payload.snapshot()
    values = {float(tensor.min()) for tensor in kept.tensors.values()}
    sender.pack()  # the copy that was lent stays as it was
    values |= {float(tensor.max()) for tensor in kept.tensors.values()}
    way.send((peak, kept.version, values))


def peak_of_sender(monkeypatch, *, on_disk):
    """Return the peak of a process that sends, once what it sent and keeps is looked at."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setattr(weight_transfer, "node_address", lambda: "127.0.0.1")
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=send_thrice, args=(theirs, on_disk), daemon=True)
    process.start()
    theirs.close()
    endpoint = ours.recv()
    receiver = WeightReceiver()
    ours.send(endpoint)
    joined(receiver, endpoint, rank=1)
    for version in (1, 2, 3):
        manifest = ours.recv()
        found = {float(one[-1]) for one in receiver.receive(manifest).tensors.values()}
        assert (manifest.version, found) == (version, {version})
    peak, kept_version, values = ours.recv()
    process.join(60.0)
    assert (kept_version, values) == (3, {3.0})
    return peak


def test_the_sender_holds_no_more_than_two_buckets_where_its_copy_is_a_file(monkeypatch) -> None:
    # and a few tensors that are made or freed meanwhile: the kernel counts pages, not buckets
    most = 2 * BUCKET + 2 * TENSOR
    assert most < min(3 * BUCKET, NUM * TENSOR / 2)
    assert peak_of_sender(monkeypatch, on_disk=True) <= most


def test_the_sender_holds_its_copy_where_that_is_in_memory(monkeypatch) -> None:
    assert peak_of_sender(monkeypatch, on_disk=False) >= NUM * TENSOR
