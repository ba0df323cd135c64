"""What vLLM is asked for a request, and what becomes of its answer, without vLLM."""

import math
from types import SimpleNamespace

import pytest
from trinity.common.ports import Completion, GenerationRequest, RunKey, Structure
from trinity.errors import ModelError
from trinity_engine_vllm.requests import completions, parameters


def asked(**options):
    request = GenerationRequest(prompt_token_ids=(5, 6, 7), **options)
    return parameters(request, seed=3, version=2, max_model_len=10)


def test_the_reply_is_as_long_as_the_context_lets_it() -> None:
    assert asked(max_new_tokens=50)["max_tokens"] == 7
    assert asked(max_new_tokens=4)["max_tokens"] == 4
    assert asked(max_new_tokens=4, min_new_tokens=9)["min_tokens"] == 4


def test_no_limit_is_zero_for_vllm() -> None:
    assert asked()["top_k"] == 0
    assert asked(top_k=5)["top_k"] == 5


def test_texts_are_made_only_where_a_stop_string_is_looked_for() -> None:
    assert asked()["detokenize"] is False
    stopped = asked(stop=("\n",), stop_token_ids=(4,))
    assert (stopped["detokenize"], stopped["stop"]) == (True, ["\n"])
    assert stopped["stop_token_ids"] == [4]
    assert stopped["include_stop_str_in_output"] is True
    assert stopped["skip_special_tokens"] is False


def test_a_structure_decides_where_a_reply_ends() -> None:
    structure = Structure(kind="regex", text="a")
    held = asked(max_new_tokens=4, min_new_tokens=3, ignore_eos=True, structure=structure)
    assert (held["min_tokens"], held["ignore_eos"]) == (0, False)


def test_greedy_samples_are_made_once() -> None:
    assert asked(n=4, temperature=0.0)["n"] == 1
    assert asked(n=4)["n"] == 4


def test_the_seed_follows_from_seed_key_and_version() -> None:
    keys = [RunKey(run=run, draw=draw) for run in (0, 1) for draw in (1, 2)]
    seeds = [asked(key=key)["seed"] for key in keys]

    assert len({*seeds}) == 4
    assert seeds == [asked(key=key)["seed"] for key in keys]
    other = GenerationRequest(prompt_token_ids=(5, 6, 7), key=keys[0])
    assert parameters(other, seed=4, version=2, max_model_len=10)["seed"] != seeds[0]
    assert parameters(other, seed=3, version=3, max_model_len=10)["seed"] != seeds[0]
    assert all(0 <= seed < 2**63 for seed in seeds)


def output(index, *, logprobs=(-0.5, -0.25), finish="stop", stop=None):
    return SimpleNamespace(
        index=index,
        token_ids=[8, 2],
        logprobs=SimpleNamespace(logprobs=list(logprobs)),
        finish_reason=finish,
        stop_reason=stop,
    )


def test_completions_are_in_the_order_of_the_samples() -> None:
    answer = SimpleNamespace(
        outputs=[output(1, stop="\n"), output(0, finish="length"), output(2, stop=2)]
    )

    first, second, third = completions(answer, n=3, spans=lambda _: [(0, 7)])

    assert first == Completion(
        token_ids=(8, 2), logprobs=(-0.5, -0.25), finish_reason="length", weight_version=7
    )
    assert (second.finish_reason, second.stop_reason) == ("stop", "\n")
    assert (third.finish_reason, third.stop_reason) == ("stop", None)  # an end token's id


def test_a_greedy_answer_stands_for_all_samples() -> None:
    assert (
        len(completions(SimpleNamespace(outputs=[output(0)]), n=3, spans=lambda _: [(0, 0)])) == 3
    )


def test_a_model_that_computes_nan_is_said_to_have_diverged() -> None:
    answer = SimpleNamespace(outputs=[output(0, logprobs=(-0.5, math.nan))])
    with pytest.raises(ModelError, match="NaN with policy version 7: training diverged"):
        completions(answer, n=1, spans=lambda _: [(0, 7)])


def test_a_reply_that_went_on_with_other_weights_says_which_token_is_of_which() -> None:
    spans = {0: [(0, 3), (1, 4)], 1: [(0, 4)]}
    answer = SimpleNamespace(outputs=[output(0), output(1)])
    first, second = completions(answer, n=2, spans=spans.__getitem__)
    assert (first.weight_version, first.version_spans) == (3, ((0, 3), (1, 4)))
    assert (second.weight_version, second.version_spans) == (4, ())
