"""An error that is one request's reaches that request alone; a fake stands for vLLM."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from trinity.common.generation import PendingReply
from trinity.common.ports import GenerationRequest, Structure
from trinity.errors import ModelError
from trinity_engine_vllm import structure as held
from trinity_engine_vllm.asked import Asked
from trinity_engine_vllm.stepping import Stepping


class FakeLLM:
    """Answers each request with one token, and no logits ever reach what holds structures."""

    def __init__(self):
        self.llm_engine = self
        self.open = []
        text = SimpleNamespace(tie_word_embeddings=False)
        model = SimpleNamespace(hf_text_config=text, model="nowhere", get_vocab_size=lambda: 99)
        self.vllm_config = SimpleNamespace(model_config=model)

    def add_request(self, name, prompt, params):
        self.open.append(name)

    def step(self):
        outputs = [output(name) for name in self.open]
        self.open = []
        return outputs


class AnyText:
    """Compiles the structure "any", which allows all tokens; no other one."""

    def matcher(self, structure):
        if structure.text != "any":
            raise OverflowError("too large")
        return SimpleNamespace(consume_token=lambda token: True, is_error=lambda: False)


def output(name):
    sample = SimpleNamespace(
        index=0, token_ids=[8], logprobs=SimpleNamespace(logprobs=[-0.5]),
        finish_reason="length", stop_reason=None,
    )  # fmt: skip
    return SimpleNamespace(request_id=name, finished=True, outputs=[sample])


@pytest.fixture
def stepping(monkeypatch):
    """Return vLLM as one thread steps it, that tells processed log-probabilities."""
    vllm, sampling = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vllm.SamplingParams = lambda **params: params
    vllm.LLM = FakeLLM
    sampling.RequestOutputKind = SimpleNamespace(FINAL_ONLY="final")
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", sampling)
    made = Stepping(
        {}, is_cpu=False, num_threads=None, seed=0, max_model_len=32, mode="processed_logprobs"
    )
    made.structures = AnyText()
    return made


@pytest.fixture
def give(stepping):
    """Return a function that asks for one reply, held to a structure of this text."""

    def start(text=None):
        structure = None if text is None else Structure(kind="regex", text=text)
        request = GenerationRequest(prompt_token_ids=(5, 6), structure=structure)
        future = PendingReply(on_cancel=lambda: None)
        future.set_running_or_notify_cancel()
        stepping.give(Asked(prompt=(5, 6), future=future, request=request))
        return future

    return start


def test_an_answer_that_cannot_be_made_is_an_error_of_its_request_alone(stepping, give) -> None:
    before, bad, behind = give(), give("any"), give()

    stepping.step()

    assert before.result(0)[0].token_ids == behind.result(0)[0].token_ids == (8,)
    # Nothing noted the share of the allowed tokens, which processed log-probabilities lack.
    with pytest.raises(ModelError, match="vLLM could not generate: KeyError"):
        bad.result(0)
    assert stepping.num_open == 0
    assert held._in_process == {}


def test_what_a_matcher_cannot_follow_is_an_error_of_its_request_alone(stepping, give) -> None:
    bad, other = give("large"), give()
    stepping.step()
    assert other.result(0)[0].token_ids == (8,)
    with pytest.raises(ModelError, match="vLLM could not generate: OverflowError: too large"):
        bad.result(0)


def test_a_request_that_cannot_be_given_fails_alone_also_when_nobody_waits(
    stepping, give, monkeypatch
) -> None:
    def fail(request, params):
        raise MemoryError("none left")

    monkeypatch.setattr(stepping, "_held", fail)
    with pytest.raises(ModelError, match="vLLM could not take the request: MemoryError: none left"):
        give().result(0)

    given_up = PendingReply(on_cancel=lambda: None)
    given_up.set_running_or_notify_cancel()
    given_up.cancel()
    stepping.give(Asked(prompt=(5,), future=given_up, request=None))
    assert stepping.num_open == 0
