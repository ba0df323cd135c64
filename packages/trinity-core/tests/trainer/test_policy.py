from __future__ import annotations

import math

import pytest
import torch
from trinity.trainer.policy import score_tokens

TARGETS = torch.tensor([0, 3, 2, 1, 3, 0, 2])


def setting(seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(7, 6, generator=generator, dtype=torch.float64).requires_grad_()
    weight = torch.randn(5, 6, generator=generator, dtype=torch.float64).requires_grad_()
    temperature = 0.5 + torch.rand(7, generator=generator, dtype=torch.float64)
    return hidden, weight, temperature


def scored(chunk_tokens, *, entropy=None):
    hidden, weight, temperature = setting()
    sizes = []

    def head(chunk):
        sizes.append(len(chunk))
        return chunk @ weight.T

    scores = score_tokens(
        hidden, TARGETS, temperature, head=head, chunk_tokens=chunk_tokens, entropy=entropy
    )
    return scores, hidden, weight, sizes


def test_two_logits_one_nat_apart_give_the_logistic_function():
    # logits (1, 0) at temperature 0.5: softmax of (2, 0) = 1 / (1 + e^-2)
    scores = score_tokens(
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([0]),
        torch.tensor([0.5]),
        head=lambda hidden: hidden,
        chunk_tokens=8,
        entropy=False,
    )
    p = 1 / (1 + math.exp(-2))

    assert scores.logprob.item() == pytest.approx(math.log(p))
    assert scores.entropy.item() == pytest.approx(
        -p * math.log(p) - (1 - p) * math.log(1 - p), abs=1e-6
    )


def test_the_mean_of_s_is_how_fast_the_entropy_falls_for_the_average_token():
    # logits (1, 0) at temperature 0.5: S = p (H + log p) of both tokens, weighed by p
    scores = score_tokens(
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([0]),
        torch.tensor([0.5]),
        head=lambda hidden: hidden,
        chunk_tokens=8,
        entropy=False,
        mean_change=True,
    )
    p = 1 / (1 + math.exp(-2))
    q, entropy = 1 - p, -p * math.log(p) - (1 - p) * math.log(1 - p)

    assert scores.mean_change.item() == pytest.approx(
        p * p * (entropy + math.log(p)) + q * q * (entropy + math.log(q)), abs=1e-6
    )


def test_the_entropy_changes_as_s_and_its_mean_say():
    # d entropy of a small step that raises log p of token k: -(S_k - sum(p S)), by autograd
    logits = torch.tensor([0.3, -1.0, 0.8], dtype=torch.float64, requires_grad=True)
    logprobs = logits.log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum()
    of_entropy = torch.autograd.grad(entropy, logits, retain_graph=True)[0]
    token = 2
    step = torch.autograd.grad(logprobs[token], logits)[0]
    scores = score_tokens(
        logits.detach()[None],
        torch.tensor([token]),
        None,
        head=lambda hidden: hidden,
        chunk_tokens=8,
        entropy=False,
        mean_change=True,
    )
    of_token = scores.logprob.exp() * (scores.entropy + scores.logprob)

    assert (scores.mean_change - of_token).item() == pytest.approx(float(of_entropy @ step))


@pytest.mark.parametrize("chunk_tokens", [1, 2, 3])
def test_chunks_change_neither_scores_nor_gradients(chunk_tokens):
    whole, hidden, weight, _ = scored(100, entropy=True)
    cut, cut_hidden, cut_weight, _ = scored(chunk_tokens, entropy=True)

    for scores in (whole, cut):
        (scores.logprob.square().sum() + scores.entropy.square().sum()).backward()

    torch.testing.assert_close(cut.logprob, whole.logprob)
    torch.testing.assert_close(cut_hidden.grad, hidden.grad)
    torch.testing.assert_close(cut_weight.grad, weight.grad)


def test_logits_exist_for_no_more_tokens_than_a_chunk():
    scores, _, _, sizes = scored(3)
    scores.logprob.sum().backward()

    assert sizes[:3] == [3, 3, 1]
    assert sorted(sizes[3:]) == [1, 3, 3]  # again, for the gradient


def test_entropy_that_is_only_measured_has_no_gradient():
    scores, *_ = scored(3, entropy=False)

    assert not scores.entropy.requires_grad
    assert scores.logprob.requires_grad


def test_entropy_that_nobody_asked_for_is_not_there():
    assert scored(3)[0].entropy is None
