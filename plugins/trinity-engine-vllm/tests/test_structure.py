"""What vLLM's own log-probabilities lack for a reply within a structure, without vLLM."""

import math
from types import SimpleNamespace

import pytest
import torch
from trinity.common.ports import GenerationRequest, Structure
from trinity.errors import ModelError
from trinity_engine_vllm.logprobs_mode import Sampling, check_mode
from trinity_engine_vllm.structure import Held, row_of, why_none, with_processor

PAIR = Structure(kind="regex", text="two tokens, 1 or 2")


class Pair:
    """Allows the tokens 1 and 2, twice; 3 makes it fail."""

    def __init__(self):
        self.said = []

    def consume_token(self, token):
        self.said.append(token)

    def is_error(self):
        return 3 in self.said

    def get_error(self):
        return "3 is not allowed"

    def is_stopped(self):
        return len(self.said) >= 2


class Pairs:
    """A compiled structure, and what says what may follow."""

    def matcher(self):
        return Pair()

    def allowed(self, matchers):
        return torch.tensor([[False, True, True, False] for _ in matchers])


@pytest.fixture
def hold():
    """Return a function that makes what vLLM has; seed 40."""
    made = []

    def start(mode="processed_logprobs", **options):
        request = GenerationRequest(prompt_token_ids=(5,), structure=PAIR, **options)
        held = Held(request=request, compiled=Pairs(), structures=Pairs(), mode=mode, seed=40)
        made.append(held)
        return held, held.begin()

    yield start
    for held in made:
        held.end()


def row_for(extra, *, seed=40):
    return row_of(SimpleNamespace(extra_args=extra, seed=seed))


def test_what_is_barred_is_gone_and_its_share_is_put_back(hold) -> None:
    held, extra = hold(n=2)
    row = row_for(extra, seed=41)  # the second sample
    logits = torch.tensor([0.5, 0.125, 0.125, 0.25]).log()

    masked = row([], logits)
    row([1], logits)

    assert masked.exp().tolist() == pytest.approx([0.0, 0.125, 0.125, 0.0])
    # Within the structure each has 1/2, without it 1/8: the allowed ones have 1/4 together.
    tokens, logprobs = held.told(1, [1, 2], [math.log(0.5)] * 2)
    assert tokens == (1, 2)
    assert logprobs == pytest.approx([math.log(0.125)] * 2)


def test_the_share_is_that_at_the_temperature(hold) -> None:
    held, extra = hold(temperature=0.5)
    row = row_for(extra)
    row([], torch.tensor([3.0, 1.0, 1.0, 2.0]).log())  # at 0.5: 9, 1, 1, 4 of 15

    _, (logprob,) = held.told(0, [1], [math.log(0.5)])

    assert logprob == pytest.approx(math.log(1 / 15))


def test_what_vllm_calls_raw_is_left_as_it_is(hold) -> None:
    held, extra = hold("raw_logprobs")
    row_for(extra)([], torch.zeros(4))
    assert held.told(0, [1], [-7.0])[1] == (-7.0,)


def test_the_end_token_behind_a_structure_stays_in_the_reply_whatever_the_request_says(
    hold,
) -> None:
    """A wrapper takes the last token of an ended reply for its end token."""
    held, _ = hold("raw_logprobs", ignore_eos=True)
    assert held.told(0, [1, 2, 0], [-1.0, -2.0, -3.0]) == ((1, 2, 0), (-1.0, -2.0, -3.0))


def test_a_reply_that_leads_nowhere_is_an_error(hold) -> None:
    held, _ = hold("raw_logprobs")
    with pytest.raises(ModelError, match="cannot continue within its structure: 3 is not allowed"):
        held.told(0, [1, 3], [-1.0, -1.0])


def test_what_fails_in_a_row_is_told_with_its_answer_and_the_row_goes_on_free(
    hold, monkeypatch
) -> None:
    held, extra = hold()
    row, logits = row_for(extra), torch.zeros(4)

    def fail(matchers):
        raise OverflowError("out of range")

    monkeypatch.setattr(held.structures, "allowed", fail)
    assert row([], logits) is logits

    monkeypatch.undo()
    assert row([1], logits) is logits  # its answer is an error by now
    with pytest.raises(ModelError, match="hold the reply to its structure: OverflowError: out of"):
        held.told(0, [1, 2], [-1.0, -1.0])


def test_a_row_that_is_computed_anew_reads_its_reply_again(hold) -> None:
    _, extra = hold()
    row = row_for(extra)
    row([1, 2], torch.zeros(4))
    row([1], torch.zeros(4))
    assert row._matcher.said == [1]


def test_what_has_no_structure_or_was_given_up_is_free(hold) -> None:
    held, extra = hold()
    held.end()
    assert row_for(extra) is None
    assert row_for(None) is None


@pytest.mark.parametrize(
    ("arguments", "is_cpu", "runner", "reason"),
    [
        ({}, True, None, ""),
        ({}, False, "0", ""),
        ({}, False, None, "VLLM_USE_V2_MODEL_RUNNER: '0'"),
        ({}, True, "1", "VLLM_USE_V2_MODEL_RUNNER: '0'"),
        ({"speculative_config": {"method": "ngram"}}, True, None, "extra_engine_args.speculative"),
        ({"tensor_parallel_size": 2}, True, None, "tensor_parallel_size is above 1"),
    ],
)
def test_an_engine_that_can_hold_nothing_says_why(
    arguments, is_cpu, runner, reason, monkeypatch
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    if runner is not None:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    said = why_none(arguments, is_cpu=is_cpu)
    assert reason in said
    assert bool(said) == bool(reason)


def test_processors_that_a_user_named_stay() -> None:
    named = with_processor({"logits_processors": ["a:B"], "model": "m"})
    assert named["logits_processors"][0] == "a:B"
    assert len(named["logits_processors"]) == 2


def test_the_least_length_does_not_hold_beside_a_structure() -> None:
    request = GenerationRequest(prompt_token_ids=(5,), min_new_tokens=3, structure=PAIR)
    check_mode(Sampling.of(request), "processed_logprobs")
