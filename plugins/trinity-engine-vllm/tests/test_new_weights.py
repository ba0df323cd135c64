"""In which order new weights reach vLLM, and what it answers meanwhile; a fake stands for vLLM."""

import sys
import threading
from types import ModuleType, SimpleNamespace

import pytest
import torch
from trinity.common.ports import GenerationRequest, WeightSnapshot
from trinity.errors import ModelError
from trinity_engine_vllm import engine as engine_module
from trinity_engine_vllm.engine import VLLMEngine


class FakeLLM:
    """Answers each request with one token at its first step; notes what it is told, in order."""

    def __init__(self, log, **arguments):
        self.llm_engine = self
        self.log = log
        self.open = []
        self.may_load = threading.Event()
        self.may_load.set()
        self.fault = None  # in the midst of new weights
        self.engine_core = SimpleNamespace(shutdown=lambda: None)
        text = SimpleNamespace(tie_word_embeddings=False)
        model = SimpleNamespace(hf_text_config=text, model="nowhere", get_vocab_size=lambda: 99)
        self.vllm_config = SimpleNamespace(model_config=model)

    def add_request(self, name, prompt, params):
        self.log.append(f"asked {name}")
        self.open.append(name)

    def step(self):
        outputs = [self._output(name) for name in self.open]
        self.open = []
        self.log += [f"answered {output.request_id}" for output in outputs]
        return outputs

    def abort_request(self, names):
        self.open = [name for name in self.open if name not in names]

    def collective_rpc(self, method, kwargs):
        self.log.append(f"{method} began")
        for name, _ in kwargs["weights_iterator"]:
            assert self.may_load.wait(10)
            if self.fault is not None:
                raise self.fault
            self.log.append(f"took {name}")

    def reset_prefix_cache(self):
        self.log.append("dropped the prefix cache")

    def _output(self, name):
        sample = SimpleNamespace(
            index=0, token_ids=[8], logprobs=SimpleNamespace(logprobs=[-0.5]),
            finish_reason="length", stop_reason=None,
        )  # fmt: skip
        return SimpleNamespace(request_id=name, finished=True, outputs=[sample])


@pytest.fixture
def made(monkeypatch):
    """Return an engine, the vLLM behind it, and what that was told."""
    log, vllm, sampling = [], ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vllm.SamplingParams = lambda **params: params
    llms = []

    def start(**arguments):
        llms.append(FakeLLM(log, **arguments))
        return llms[-1]

    vllm.LLM = start
    sampling.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling)
    monkeypatch.setattr(engine_module, "installed", lambda: "vllm")
    engine = VLLMEngine(model_path="nowhere", max_model_len=32)
    yield engine, llms[0], log
    engine.close()


def asked(engine):
    return engine.submit(GenerationRequest(prompt_token_ids=(5, 6), max_new_tokens=1))


def weights(version=4):
    return WeightSnapshot(version=version, tensors={"a": torch.ones(1), "b": torch.ones(1)})


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


def test_an_exception_in_the_midst_leaves_an_engine_that_answers_nothing_until_others_come(
    made,
) -> None:
    engine, llm, log = made
    llm.fault = RuntimeError("CUDA error")

    with pytest.raises(ModelError, match="vLLM could not take new weights: RuntimeError: CUDA err"):
        engine.load_weights(weights())

    assert engine.version == 0
    with pytest.raises(ModelError, match="may hold a part of them: it answers nothing until"):
        asked(engine)
    assert "dropped the prefix cache" not in log
    llm.fault = None
    engine.load_weights(weights(5))
    assert asked(engine).result(10)[0].weight_version == 5
