"""A GPU that is full: the phase, the plan, what was there, and which keys to change."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path

import pretend_cuda
import pytest
import torch
from trinity.common.ports import GenerationRequest, RunKey
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError

sys.path.insert(0, str(Path(__file__).parent))
from gpu_parts import a_model, a_trainer, rows

MIB = 2**20
SHORT = {"num": 4, "prompt": 3, "response": 8}  # rows whose activations are small beside the states
PHASES = {  # MiB that the GPU has beside the weights, and what then does not fit
    "forward pass": (1.0, {}, "trainer.max_token_len_per_gpu: 2048"),
    "backward pass": (30.0, {}, "trainer.gradient_checkpointing: true"),
    "optimizer": (4.0, SHORT, "trainer.trainer_strategy: fsdp2"),
}


@contextmanager
def a_gpu_with(mib: float):
    """Let the GPU have so much more memory than is allocated."""
    pretend_cuda.backend.set_limit(torch.cuda.memory_allocated() + int(mib * MIB))
    try:
        yield
    finally:
        pretend_cuda.backend.set_limit(2**62)


@pytest.fixture
def model(tmp_path) -> Path:
    return a_model(tmp_path, hidden=64, vocab=4096)


@pytest.mark.parametrize("phase", PHASES)
def test_the_phase_that_did_not_fit_is_named_with_the_plan_and_what_helps(phase, model) -> None:
    mib, shape, remedy = PHASES[phase]
    made = a_trainer(model, trainer={"prefix_sharing": "off"})

    with a_gpu_with(mib), pytest.raises(ModelError) as caught:
        made.train_step(rows(**shape, vocab=4096), step=1)

    print(said := str(caught.value))
    assert said.startswith(f"the GPU ran out of memory in the trainer's {phase}")
    assert "The plan was 5 MiB at rest and 311 MiB at the peak." in said
    assert "this process held" in said
    assert remedy in said


def test_a_copy_of_the_weights_that_does_not_fit_is_named_as_the_sync(model) -> None:
    made = a_trainer(model)

    with a_gpu_with(0.1), pytest.raises(ModelError, match=r"in the trainer's weight sync: 1 MiB"):
        made.snapshot(copy=True)


@pytest.mark.parametrize(("mib", "fits"), [(3.0, True), (0.02, False)])
def test_an_engine_continues_with_fewer_replies_until_one_alone_does_not_fit(
    mib, fits, model, caplog
) -> None:
    engine = TransformersEngine(model_path=str(model), max_model_len=256, device="cuda")
    key = RunKey(batch="0", task=0, run=0, request=0, attempt=1)
    prompt = tuple(range(5, 37))
    asked = GenerationRequest(prompt_token_ids=prompt, key=key, n=64, max_new_tokens=100)
    try:
        with a_gpu_with(mib):
            if fits:
                assert len(engine.submit(asked).result(120)) == 64
            else:
                with pytest.raises(ModelError, match=r"in the rollout \(of one reply\)") as caught:
                    engine.submit(asked).result(120)
                print(caught.value)
    finally:
        engine.close()
    (said,) = [line for line in caplog.messages if "ran out of memory in the rollout" in line][:1]
    print(said)
    assert "The engine goes on with at most 32 replies at a time; before, it had 64." in said
