"""In which order new weights reach vLLM, and what it answers meanwhile; a fake stands for vLLM."""

import threading
import time
from contextlib import contextmanager

import pytest
import torch
from trinity.common.ports import GenerationRequest, WeightSnapshot
from trinity.common.ports.weights import TensorStream
from trinity.errors import ModelError, TrinityError
from trinity_engine_vllm import engine as engine_module
from trinity_engine_vllm.engine import VLLMEngine


@pytest.fixture
def made(fake_vllm, monkeypatch):
    """Return an engine, the vLLM behind it, and what that was told."""
    monkeypatch.setattr(engine_module, "installed", lambda: "vllm")
    engine = VLLMEngine(model_path="nowhere", max_model_len=32)
    (llm,) = fake_vllm
    yield engine, llm, llm.log
    engine.close()


def asked(engine):
    return engine.submit(GenerationRequest(prompt_token_ids=(5, 6), max_new_tokens=1))


def weights(version=4):
    """Return weights that can be read once, in their order."""
    tensors = {"a": torch.ones(1), "b": torch.ones(1)}
    snapshot = WeightSnapshot(version=version, tensors=tensors)
    return TensorStream.rounded(snapshot, "bfloat16", lambda _, tensor: tensor)


def test_the_version_changes_once_all_weights_are_in_and_the_prefix_cache_is_gone(made) -> None:
    engine, _, log = made

    assert asked(engine).result(10)[0].weight_version == 0
    engine.load_weights(weights())
    assert asked(engine).result(10)[0].weight_version == 4

    assert log == [
        "asked 1", "answered 1",
        "reload_weights began", "took a", "took b", "dropped the prefix cache",
        "asked 2", "answered 2",
    ]  # fmt: skip


def test_the_gpu_is_waited_for_before_tensors_are_read_and_before_they_are_let_go_of(
    made, monkeypatch
) -> None:
    """The trainer's thread computes them, and their memory's next numbers, in another stream."""
    engine, _, log = made
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("waited"))

    engine.load_weights(weights())

    assert log == [
        "waited",
        "reload_weights began", "took a", "took b",
        "waited",
        "dropped the prefix cache",
    ]  # fmt: skip


def test_nothing_is_answered_while_weights_come_and_the_version_is_the_old_one(made) -> None:
    engine, llm, log = made
    llm.may_load.clear()
    loading = threading.Thread(target=engine.load_weights, args=(weights(),))
    loading.start()
    while "reload_weights began" not in log:
        pass

    with pytest.raises(ModelError, match="it answers nothing until a later load succeeds"):
        asked(engine)

    assert engine.version == 0
    assert log == ["reload_weights began"]
    llm.may_load.set()
    loading.join(10)
    assert engine.version == 4


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (RuntimeError("CUDA error"), "vLLM could not take new weights: RuntimeError: CUDA error"),
        (TrinityError("the broadcast failed"), "^the broadcast failed"),
    ],
)
def test_an_exception_in_the_midst_leaves_an_engine_that_answers_nothing_until_others_come(
    made, fault, told
) -> None:
    engine, llm, log = made
    llm.fault = fault

    with pytest.raises(TrinityError, match=told):
        engine.load_weights(weights())

    assert engine.version == 0
    with pytest.raises(ModelError, match="may hold a part of them: it answers nothing until"):
        asked(engine)
    assert "dropped the prefix cache" not in log
    llm.fault = None
    engine.load_weights(weights(5))
    assert asked(engine).result(10)[0].weight_version == 5


@pytest.mark.parametrize("in_flight", ["keep", "abort"])
def test_a_cancellation_in_a_step_is_heard_behind_new_weights(made, in_flight) -> None:
    engine, llm, _ = made
    with held_step(llm) as began:
        future = asked(engine)
        assert began.wait(10)
        future.cancel()
        swapping = start_swap(engine, in_flight)
    swapping.join(10)

    until(lambda: not llm.open)
    assert engine.version == 4


@pytest.mark.parametrize(
    ("in_flight", "then"),
    [("keep", ["answered 1"]), ("abort", ["forgot 1", "asked 2", "answered 2"])],
)
def test_what_the_old_weights_made_of_texts_is_dropped_while_a_request_runs(
    made, in_flight, then
) -> None:
    engine, llm, log = made
    with held_step(llm) as began:
        future = asked(engine)
        assert began.wait(10)
        swapping = start_swap(engine, in_flight)
    swapping.join(10)

    assert future.result(10)[0].token_ids == (8,)
    assert log == [
        "asked 1",
        "reload_weights began", "took a", "took b", "dropped the prefix cache",
        *then,
    ]  # fmt: skip


@contextmanager
def held_step(llm):
    """Hold the first step, which ends without an answer, until the block ends."""
    began, may_end = threading.Event(), threading.Event()

    def held():
        del llm.step
        began.set()
        assert may_end.wait(10)
        return []  # its request goes on

    llm.step = held
    yield began
    may_end.set()


def start_swap(engine, in_flight):
    """Return a thread that swaps the weights, once the engine's thread has heard of it."""
    swap = {"target": engine.swap_weights, "args": (weights(),), "kwargs": {"in_flight": in_flight}}
    swapping = threading.Thread(**swap)
    swapping.start()
    until(lambda: engine._worker._urgent)
    return swapping


def until(holds) -> None:
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)
