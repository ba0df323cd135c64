"""vLLM takes weights that another process shares (``sync_method: ipc``); run by ``nox -s vllm``."""

from __future__ import annotations

import threading
from multiprocessing import get_context

import pytest
import torch
from transformers import AutoModelForCausalLM
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.runtime.ray.receiving import ReceivesWeights
from trinity.synchronizer.channel import BrokenOffError
from trinity.synchronizer.machine import machine_id
from trinity.synchronizer.shared import SharedOutbox
from trinity_engine_vllm.engine import VLLMEngine

PROMPT = tuple(range(5, 45))
ANSWER_S = 60.0

pytestmark = pytest.mark.skipif(not machine_id(), reason="this system shares no sealed memory")


class Room(ReceivesWeights):
    """An engine's room, as far as weights are concerned."""

    def __init__(self, engine) -> None:
        self._number, self._engine = 1, engine
        self._serves, self._is_loaded = threading.Event(), False

    def open(self, session: str) -> None:
        """End the session there is: nobody is served."""

    def serve(self) -> None:
        """Answer from now on."""
        self._serves.set()


def share(folders, told):
    """Be the trainer's process: version -> where its weights are."""
    outbox = SharedOutbox()
    while True:
        version = told.recv()
        module = AutoModelForCausalLM.from_pretrained(folders[version])
        tensors = {name: weight.detach() for name, weight in module.named_parameters()}
        told.send(outbox.share(WeightSnapshot(version=WeightVersion(version), tensors=tensors)))


def assert_is_of(engine, path, version, ask, teacher_forced):
    module = AutoModelForCausalLM.from_pretrained(path)
    (found,) = engine._stepping._engine.apply_model(
        lambda model: {name: weight.clone() for name, weight in model.named_parameters()}
    )
    sent = module.get_parameter("model.norm.weight")
    assert torch.equal(found["model.norm.weight"][: len(sent)], sent)
    (reply,) = engine.submit(ask(PROMPT)).result(ANSWER_S)
    wanted = teacher_forced(module, PROMPT, reply.token_ids)
    assert list(reply.logprobs) == pytest.approx(wanted, abs=1e-4)
    assert reply.weight_version == engine.version == version


@pytest.mark.parametrize("is_tied", [True, False])
def test_shared_weights_are_loaded_in_place_and_stay_when_their_owner_is_killed(
    folder, ask, teacher_forced, is_tied
) -> None:
    folders = [folder(is_tied=is_tied, seed=seed) for seed in range(3)]
    context = get_context("spawn")  # vLLM's threads live here
    here, there = context.Pipe()
    process = context.Process(target=share, args=(folders, there), daemon=True)
    process.start()
    engine = VLLMEngine(model_path=str(folders[0]), max_model_len=128)
    try:
        room = Room(engine)
        for version in (1, 2):
            here.send(version)
            assert here.poll(ANSWER_S)
            shared = here.recv()
            room.weights("receive", shared)
            if version == 2:
                process.kill()
                process.join(10)
            assert room.load_received() == version
            assert_is_of(engine, folders[version], version, ask, teacher_forced)
        with pytest.raises(BrokenOffError, match="are gone"):
            room.weights("receive", shared)
        assert_is_of(engine, folders[2], 2, ask, teacher_forced)
    finally:
        engine.close()
        process.kill()
        process.join(10)
