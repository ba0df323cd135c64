"""An error that is one request's reaches that request alone; a fake stands for vLLM."""

from types import SimpleNamespace

import pytest
from trinity.common.generation import PendingReply
from trinity.common.ports import GenerationRequest, Structure
from trinity.errors import ModelError
from trinity_engine_vllm import structure as held
from trinity_engine_vllm.asked import Asked
from trinity_engine_vllm.stepping import Stepping


class Compiled:
    """The structure "any", which allows all tokens; one that is "large" cannot be followed."""

    def __init__(self, text):
        self.text = text

    def matcher(self):
        if self.text != "any":
            raise OverflowError("too large")
        return SimpleNamespace(consume_token=lambda token: True, is_error=lambda: False)


@pytest.fixture
def stepping(fake_vllm):
    """Return vLLM as one thread steps it, that tells processed log-probabilities.

    No logits ever reach what holds structures.
    """
    made = Stepping(
        {}, is_cpu=False, num_threads=None, seed=0, max_model_len=32, mode="processed_logprobs"
    )
    made.structures = None  # nothing is barred
    return made


@pytest.fixture
def give(stepping):
    """Return a function that asks for one reply, held to a structure of this text."""

    def start(text=None):
        structure = None if text is None else Structure(kind="regex", text=text)
        request = GenerationRequest(prompt_token_ids=(5, 6), structure=structure)
        future = PendingReply(on_cancel=lambda: None)
        future.set_running_or_notify_cancel()
        compiled = None if text is None else Compiled(text)
        stepping.give(Asked(prompt=(5, 6), future=future, request=request, compiled=compiled))
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
