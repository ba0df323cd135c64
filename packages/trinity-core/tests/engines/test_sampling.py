"""The choice of a token, with numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from trinity.common.ports import GenerationRequest, RunKey, WeightVersion
from trinity.engines.randomness import sample_uniforms
from trinity.engines.sampling import Sampler, search

PROBS = [0.1, 0.5, 0.4]


def choose(uniform, *, probs=PROBS, step=0, prompt=(0,), **settings):
    request = GenerationRequest(prompt_token_ids=prompt, **settings)
    uniforms = torch.full((1, step + 1), uniform)
    eos = torch.tensor([False, True, False])
    sampler = Sampler([request], uniforms_RT=uniforms, eos_V=eos)
    tokens, logprobs = sampler.choose(torch.tensor([probs]).log(), step=step)
    return tokens.item(), logprobs.item()


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 0), (0.09, 0), (0.11, 1), (0.59, 1), (0.61, 2)]
)
def test_a_uniform_number_falls_into_a_token(uniform, token):
    assert choose(uniform) == (token, pytest.approx(math.log(PROBS[token])))


def test_a_token_of_probability_0_is_never_chosen():
    weights = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).expand(3, -1)
    chosen = search(weights, torch.tensor([0.0, 0.5, 1 - 2.0**-23]))
    assert chosen.tolist() == [1, 3, 3]


def test_search_follows_the_weights():
    weights = torch.tensor([[1.0, 2.0, 5.0]]).expand(8000, -1)
    uniforms = torch.linspace(0, 1 - 1e-6, 8000)
    assert search(weights, uniforms).bincount().tolist() == [1000, 2000, 5000]


def test_top_k_keeps_the_most_likely():
    # of 0.5 and 0.4, in this order: token 1 up to 5/9, then token 2
    assert [choose(u, top_k=2)[0] for u in (0.0, 0.55, 0.56, 0.99)] == [1, 1, 2, 2]


def test_top_p_keeps_tokens_until_their_sum_reaches_it():
    # 0.5 < 0.6: token 2 belongs to it; 0.5 > 0.45: it does not
    assert [choose(u, top_p=0.6)[0] for u in (0.0, 0.56, 0.99)] == [1, 2, 2]
    assert [choose(u, top_p=0.45)[0] for u in (0.0, 0.99)] == [1, 1]


def test_top_k_cuts_before_top_p():
    # of 5/9 and 4/9: 5/9 >= 0.55 suffices
    assert choose(0.99, top_k=2, top_p=0.55)[0] == 1


def test_temperature_0_takes_the_most_likely_and_reports_temperature_1():
    assert choose(0.99, temperature=0.0) == (1, pytest.approx(math.log(0.5)))


def test_temperature_sharpens():
    # squares: 0.01, 0.25, 0.16 of 0.42
    assert choose(0.03, temperature=0.5) == (1, pytest.approx(math.log(0.25 / 0.42)))


def test_before_min_new_tokens_the_end_token_is_barred():
    # token 1 ends: 0.1 and 0.4 remain, so that token 0 has the first fifth
    assert [choose(u, min_new_tokens=1)[0] for u in (0.19, 0.21)] == [0, 2]
    assert choose(0.5, min_new_tokens=1, step=1)[0] == 1


def test_repetition_penalty_makes_tokens_of_the_prompt_less_likely():
    # log p < 0 is doubled: 0.5 becomes 0.25, of 0.1 + 0.25 + 0.4
    chosen = [choose(u, repetition_penalty=2.0, prompt=(1,)) for u in (0.45, 0.48)]
    assert [token for token, _ in chosen] == [1, 2]
    assert chosen[0][1] == pytest.approx(math.log(0.5))  # reported as the model has it


def test_rows_of_one_batch_have_their_own_settings():
    requests = [
        GenerationRequest(prompt_token_ids=(0,)),
        GenerationRequest(prompt_token_ids=(0,), temperature=0.0),
        GenerationRequest(prompt_token_ids=(0,), top_k=2),
        GenerationRequest(prompt_token_ids=(0,), temperature=0.5),
    ]
    eos = torch.tensor([False, False, False])
    sampler = Sampler(requests, uniforms_RT=torch.full((4, 2), 0.03), eos_V=eos)
    logits = torch.tensor([PROBS]).log().expand(4, -1)
    assert sampler.choose(logits, step=0)[0].tolist() == [0, 1, 1, 1]
    sampler.keep(torch.tensor([3, 0]))
    assert sampler.choose(logits[:2], step=1)[0].tolist() == [1, 0]


def test_uniforms_depend_on_every_part_of_the_key_and_on_nothing_else():
    def draw(key=None, sample=0, seed=0, version=0):
        return sample_uniforms(
            key or RunKey(), sample=sample, seed=seed, version=WeightVersion(version), count=4
        ).tolist()

    keys = [RunKey(batch="1"), RunKey(task=1), RunKey(run=1), RunKey(request=1), RunKey(attempt=2)]
    draws = [draw(), *(draw(key) for key in keys), draw(sample=1), draw(seed=1), draw(version=1)]
    assert len({tuple(numbers) for numbers in draws}) == len(draws)
    assert draw() == draw()
    assert draw()[0] == 0.9003829956054688  # a seed gives the same run on every machine


def test_uniforms_are_uniform():
    numbers = sample_uniforms(RunKey(), sample=0, seed=0, version=WeightVersion(0), count=100_000)
    assert 0 <= numbers.min() < numbers.max() < 1
    assert np.histogram(numbers, bins=4, range=(0, 1))[0] == pytest.approx([25_000] * 4, rel=0.03)
