"""The choice of a token, with numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from trinity.common.ports import GenerationRequest, RunKey, WeightVersion
from trinity.engines import sampling
from trinity.engines.sampling import Sampler, sample_uniforms, search, uniforms_of

PROBS = [0.1, 0.5, 0.4]


def choose(uniform, *, probs=PROBS, step=0, prompt=(0,), **settings):
    request = GenerationRequest(prompt_token_ids=prompt, **settings)
    eos = torch.tensor([False, True, False])
    sampler = Sampler([(request, ())], eos_V=eos)
    tokens, logprobs = sampler.choose(
        torch.tensor([probs]).log(), uniforms_B=torch.tensor([uniform]), lengths=[step]
    )
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


def summed_in_pairs(weights):
    """Return the sums up to each column as a GPU adds: pairs of pairs, then what lies between."""
    sums, width = weights.clone(), weights.shape[-1]
    step = 1
    while step < width:
        later = sums[..., 2 * step - 1 :: 2 * step]
        later += sums[..., step - 1 :: 2 * step][..., : later.shape[-1]]
        step *= 2
    while step > 1:
        step //= 2
        between = sums[..., 3 * step - 1 :: 2 * step]
        between += sums[..., 2 * step - 1 :: 2 * step][..., : between.shape[-1]]
    return sums


@pytest.mark.parametrize("columns", [257, 64 * 64])  # one block, and blocks of 64
def test_a_token_of_probability_0_is_not_chosen_where_sums_differ_by_column_either(
    monkeypatch, columns
):
    monkeypatch.setattr(torch.Tensor, "cumsum", lambda weights, dim: summed_in_pairs(weights))
    monkeypatch.setattr(sampling, "_FROM_THE_LEFT", frozenset())
    draw = torch.Generator().manual_seed(0)
    weights = torch.rand(200, columns, generator=draw)
    weights[torch.rand(weights.shape, generator=draw) < 0.7] = 0.0
    weights /= weights.sum(dim=-1, keepdim=True)
    before = summed_in_pairs(weights).roll(1, dims=-1)
    rising = (weights == 0) & (summed_in_pairs(weights) > before)
    rising[:, 0] = False
    rows, places = rising.nonzero(as_tuple=True)
    assert len(rows) > 100  # columns of weight 0 that a sum in pairs rises at

    total = summed_in_pairs(weights)[rows, -1]
    chosen = search(weights[rows], before[rows, places] / total)

    assert (weights[rows, chosen] > 0).all()


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


def test_min_p_leaves_out_what_is_rare_beside_the_likeliest():
    # 0.1 < 0.5 / 4: of 0.5 and 0.4, token 1 up to 5/9
    assert [choose(u, min_p=0.25)[0] for u in (0.0, 0.55, 0.56, 0.99)] == [1, 1, 2, 2]
    # 0.1 > 0.5 * 0.19 stays
    assert choose(0.99, min_p=0.19, probs=[0.5, 0.1, 0.4])[0] == 1
    # before top_p: of 5/9 and 4/9, 5/9 >= 0.55 suffices
    assert choose(0.99, min_p=0.25, top_p=0.55)[0] == 1


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


def test_a_bias_is_added_to_the_logit_of_its_token():
    # 0.1 * 3 of 0.3 + 0.5 + 0.4: token 0 up to 0.25
    bias = ((0, math.log(3)),)
    chosen = [choose(u, logit_bias=bias) for u in (0.24, 0.26)]
    assert [token for token, _ in chosen] == [0, 1]
    assert chosen[0][1] == pytest.approx(math.log(0.1))  # reported as the model has it


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"presence_penalty": 1.0}, (1, 1)), ({"frequency_penalty": 0.5}, (1, 1))],
)
def test_what_a_reply_has_said_is_less_likely_by_its_presence_or_its_number(settings, said):
    # 0.5 / e is 0.184, of 0.1 + 0.184 + 0.4: token 0 up to 0.146, token 1 up to 0.415
    request = GenerationRequest(prompt_token_ids=(2, 0), **settings)  # the prompt does not count
    found = []
    for u in (0.14, 0.15, 0.41, 0.42):
        sampler = Sampler([(request, said)], eos_V=torch.tensor([False, False, False]))
        logits = torch.tensor([PROBS]).log()
        tokens, _ = sampler.choose(logits, uniforms_B=torch.tensor([u]), lengths=[2])
        found.append(tokens.item())
    assert found == [0, 1, 1, 2]


def test_a_penalty_counts_what_was_just_chosen_and_each_row_its_own():
    # greedy; 2 off a logit divides by 7.4: 0.5 -> 0.068, then 0.4 -> 0.054
    kinds = [{"presence_penalty": 2.0}, {}]
    rows = [
        (GenerationRequest(prompt_token_ids=(0,), temperature=0.0, **kind), ()) for kind in kinds
    ]
    sampler = Sampler(rows, eos_V=torch.tensor([False, False, False]))
    logits = torch.tensor([PROBS]).log().expand(2, -1)
    chosen = [
        sampler.choose(logits, uniforms_B=torch.zeros(2), lengths=[step] * 2)[0].tolist()
        for step in range(3)
    ]
    assert chosen == [[1, 1], [2, 1], [0, 1]]


def test_rows_of_one_batch_have_their_own_settings():
    requests = [
        GenerationRequest(prompt_token_ids=(0,)),
        GenerationRequest(prompt_token_ids=(0,), temperature=0.0),
        GenerationRequest(prompt_token_ids=(0,), top_k=2),
        GenerationRequest(prompt_token_ids=(0,), temperature=0.5),
    ]
    eos = torch.tensor([False, False, False])
    sampler = Sampler([(request, ()) for request in requests], eos_V=eos)
    logits = torch.tensor([PROBS]).log().expand(4, -1)
    tokens, _ = sampler.choose(logits, uniforms_B=torch.full((4,), 0.03), lengths=[0] * 4)
    assert tokens.tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.0}, {"top_k": 2}, {"temperature": 0.5}])
def test_settings_of_one_row_hold_for_all(settings):
    request = GenerationRequest(prompt_token_ids=(0,), **settings)
    eos = torch.tensor([False, False, False])
    logits = torch.tensor([PROBS, [0.5, 0.1, 0.4]]).log()
    uniforms = torch.tensor([0.3, 0.7])
    each = Sampler([(request, ())] * 2, eos_V=eos)
    common = Sampler([(request, ())], eos_V=eos)
    expected, logprobs = each.choose(logits, uniforms_B=uniforms, lengths=[0, 0])
    tokens, same = common.choose(logits, uniforms_B=uniforms, lengths=[0, 0])
    assert tokens.tolist() == expected.tolist()
    assert same.tolist() == logprobs.tolist()


def test_search_in_blocks_follows_the_weights_too():
    # 12 columns are 3 blocks of 4 (or 4 of 3); only columns 1, 6 and 11 have weight
    weights = torch.zeros(12)
    weights[[1, 6, 11]] = torch.tensor([1.0, 2.0, 1.0])
    uniforms = torch.tensor([0.0, 0.24, 0.26, 0.74, 0.76, 1 - 2.0**-23])
    chosen = search(weights.expand(6, -1), uniforms)
    assert chosen.tolist() == [1, 1, 6, 6, 11, 11]


def test_what_is_nan_gives_the_last_token():
    assert search(torch.full((1, 12), torch.nan), torch.tensor([0.5])).tolist() == [11]


def test_uniforms_depend_on_every_part_of_the_key_and_on_nothing_else():
    def draw(key=None, sample=0, seed=0, version=0):
        return sample_uniforms(
            key or RunKey(), sample=sample, seed=seed, version=WeightVersion(version), count=4
        ).tolist()

    keys = [RunKey(batch="1"), RunKey(task=1), RunKey(run=1), RunKey(request=1), RunKey(draw=2)]
    draws = [draw(), *(draw(key) for key in keys), draw(sample=1), draw(seed=1), draw(version=1)]
    assert len({tuple(numbers) for numbers in draws}) == len(draws)
    assert draw() == draw()
    assert draw()[0] == 0.9003829956054688  # a seed gives the same run on every machine


def test_uniforms_are_uniform():
    numbers = sample_uniforms(RunKey(), sample=0, seed=0, version=WeightVersion(0), count=100_000)
    assert 0 <= numbers.min() < numbers.max() < 1
    assert np.histogram(numbers, bins=4, range=(0, 1))[0] == pytest.approx([25_000] * 4, rel=0.03)


def test_many_samples_at_once_draw_what_each_draws_alone():
    samples = [(RunKey(batch="7", task=i), i % 3) for i in range(20)]
    counts = [1 + (5 * i) % 11 for i in range(20)]
    rows = uniforms_of(samples, seed=3, version=WeightVersion(2), counts=counts)
    for (key, sample), count, row in zip(samples, counts, rows, strict=True):
        alone = sample_uniforms(key, sample=sample, seed=3, version=WeightVersion(2), count=count)
        assert row == alone.tolist()
