"""vLLM takes weights that another process broadcasts over gloo (``sync_method: gloo``), or shares
(``ipc``); run by ``nox -s vllm``.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context

import pytest
import torch
from torch import distributed
from transformers import AutoModelForCausalLM
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import ModelError
from trinity.runtime.ray.engine_worker import EngineWorker
from trinity.synchronizer.channel import Channel, GroupSpec, TransferError
from trinity.synchronizer.ipc_weights import IpcStagingBuffer
from trinity.synchronizer.memfd import machine_id
from trinity.synchronizer.staging import StagingBuffer
from trinity.trainer.rendezvous import Rendezvous, connect
from trinity_engine_vllm.engine import VLLMEngine

PROMPT = tuple(range(5, 45))
ANSWER_S = 60.0
# What of vLLM's layers is neither fused nor packed on a CPU, and so is there as it was sent.
AS_SENT = ("embed_tokens.weight", "layernorm.weight", "model.norm.weight")

needs_gloo = pytest.mark.skipif(
    not distributed.is_gloo_available(), reason="this build of torch has no gloo"
)
needs_sealed_memory = pytest.mark.skipif(
    not machine_id(), reason="this system shares no sealed memory"
)


class Room(EngineWorker):
    """An engine's worker, as far as weights are concerned."""

    def __init__(self, engine) -> None:
        self._number, self._engine = 1, engine
        self._serves = threading.Event()
        self._is_loaded = self._is_poisoned = False

    def open(self, session: str) -> None:
        """End the session there is: nobody is served."""

    def serve(self) -> None:
        """Answer from now on."""
        self._serves.set()

    @property
    def serves(self) -> bool:
        """Return whether requests are let through."""
        return self._serves.is_set()


def invited(endpoint, *, number, rank):
    return GroupSpec(
        endpoint=endpoint, group=f"weights/{number}", rank=rank, size=2, backend="gloo",
        meet_s=20.0, load_s=20.0, timeout_s=5.0, bucket_bytes=1 << 16,
    )  # fmt: skip


def snapshot(folders, version):
    module = AutoModelForCausalLM.from_pretrained(folders[version])
    tensors = {name: weight.detach() for name, weight in module.named_parameters()}
    return WeightSnapshot(version=WeightVersion(version), tensors=tensors)


def send(folders, told):
    """Be the trainer's process: (what comes to pass, version) -> a manifest, and its tensors."""
    rendezvous = Rendezvous("127.0.0.1", timeout_s=20.0)
    told.send(rendezvous.endpoint)
    while (order := told.recv()) is not None:
        what, version = order
        staging = StagingBuffer()
        told.send(staging.pack(snapshot(folders, version)))
        store = connect(rendezvous.endpoint, timeout_s=20.0)
        channel = Channel(invited(rendezvous.endpoint, number=told.recv(), rank=0))
        channel.meet(store)
        manifest, tensors = staging.packed
        if what == "other weights":  # the engine leaves at the first bucket
            with suppress(TransferError):
                channel.send(replace(manifest, version=99), tensors)
            channel.leave()
            continue
        if what == "a part":
            told.send("left")
            with suppress(KeyError):
                channel.send(manifest, {name: tensors[name] for name in list(tensors)[:-1]})
            channel.leave()
            return
        channel.send(manifest, tensors)
        told.send("sent")


def share(folders, told):
    """Be the trainer's process: version -> where its weights are."""
    staging = IpcStagingBuffer()
    while True:
        told.send(staging.share(snapshot(folders, told.recv())))


@pytest.fixture
def trainer(monkeypatch):
    """Return a function that starts the other process; folders: models by version."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    started = []

    def start(what, folders):
        context = get_context("spawn")  # vLLM's threads live here
        here, there = context.Pipe()
        process = context.Process(target=what, args=(folders, there), daemon=True)
        process.start()
        there.close()
        started.append(process)
        return here, process

    yield start
    for process in started:
        process.kill()
        process.join(10)


def heard(trainer):
    assert trainer.poll(ANSWER_S)
    return trainer.recv()


class Sync:
    """The driver's part: each sync in a group of its own."""

    def __init__(self, worker, trainer) -> None:
        self.worker, self.trainer = worker, trainer
        self.place, self.number = heard(trainer), 0

    def receive(self, what, version):
        self.number += 1
        self.trainer.send((what, version))
        manifest = heard(self.trainer)
        self.trainer.send(self.number)
        self.worker.weights("join", invited(self.place, number=self.number, rank=1))
        self.worker.weights("receive", manifest)
        assert heard(self.trainer) == "sent"


def held(engine):
    """Return the weights that vLLM holds as they were sent."""
    (found,) = engine._stepping._engine.apply_model(
        lambda model: {
            name: weight.detach().clone()
            for name, weight in model.named_parameters()
            if name.endswith(AS_SENT)
        }
    )
    return found


def assert_is_of(engine, path, version, ask, teacher_forced):
    module = AutoModelForCausalLM.from_pretrained(path)
    compared = held(engine)
    assert len(compared) == 2 + 2 * module.config.num_hidden_layers
    for name, weight in compared.items():
        sent = module.get_parameter(name)
        assert torch.equal(weight[: len(sent)], sent), name
    for _ in range(2):  # the second finds its prompt in the cache
        (reply,) = engine.submit(ask(PROMPT)).result(ANSWER_S)
        wanted = teacher_forced(module, PROMPT, reply.token_ids)
        assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
        assert reply.weight_version == engine.version == version


@needs_gloo
@pytest.mark.parametrize("is_tied", [True, False])
def test_weights_that_another_process_broadcasts_are_taken_whole_or_not_at_all(
    folder, trainer, ask, teacher_forced, is_tied
) -> None:
    folders = [folder(is_tied=is_tied, seed=seed) for seed in range(4)]
    engine = VLLMEngine(model_path=str(folders[0]), max_model_len=128)
    try:
        worker = Room(engine)
        sync = Sync(worker, trainer(send, folders)[0])
        worker.serve()
        assert_is_of(engine, folders[0], 0, ask, teacher_forced)

        sync.receive("all", 1)
        assert_is_of(engine, folders[1], 1, ask, teacher_forced)

        with pytest.raises(TransferError, match="their checksum differs"):
            sync.receive("other weights", 2)
        assert not worker.serves
        with pytest.raises(ModelError, match="may hold a part of them"):
            engine.submit(ask(PROMPT)).result(ANSWER_S)

        sync.receive("all", 3)
        assert worker.serves
        assert_is_of(engine, folders[3], 3, ask, teacher_forced)

        with pytest.raises(TransferError, match="broadcast failed"):
            sync.receive("a part", 2)  # and the trainer's process is gone
        assert not worker.serves
        engine.load_weights(snapshot(folders, 1))  # all of them, on another way
        assert_is_of(engine, folders[1], 1, ask, teacher_forced)
    finally:
        engine.close()


@needs_sealed_memory
@pytest.mark.parametrize("is_tied", [True, False])
def test_shared_weights_are_loaded_and_stay_when_their_owner_is_killed(
    folder, trainer, ask, teacher_forced, is_tied
) -> None:
    folders = [folder(is_tied=is_tied, seed=seed) for seed in range(3)]
    told, process = trainer(share, folders)
    engine = VLLMEngine(model_path=str(folders[0]), max_model_len=128)
    try:
        worker = Room(engine)
        for version in (1, 2):
            told.send(version)
            shared = heard(told)
            worker.weights("receive", shared)
            if version == 2:
                process.kill()
                process.join(10)
            assert_is_of(engine, folders[version], version, ask, teacher_forced)
        with pytest.raises(TransferError, match="are gone"):
            worker.weights("receive", shared)
        assert_is_of(engine, folders[2], 2, ask, teacher_forced)
    finally:
        engine.close()
