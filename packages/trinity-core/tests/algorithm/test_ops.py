from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm.ops import (
    aggregate_loss,
    masked_mean,
    masked_sum,
    masked_var,
    mean_and_std,
)

MASK = torch.tensor([[True, True, False], [True, False, False]])
VALUES = torch.tensor([[1.0, 3.0, 1e30], [5.0, math.nan, math.inf]], dtype=torch.float64)


def test_a_masked_mean_looks_at_the_unmasked_values_alone():
    # three values, the sum of 1, 3 and 5 is 9
    assert masked_mean(VALUES, MASK).item() == pytest.approx(3.0, rel=1e-8)
    assert masked_mean(VALUES, MASK, -1).tolist() == pytest.approx([2.0, 5.0], rel=2e-8)


def test_a_mask_of_numbers_is_a_mask():
    assert masked_sum(VALUES, MASK.double()).item() == 9.0


def test_no_gradient_reaches_a_masked_value():
    values = VALUES.clone().requires_grad_()

    masked_mean(values, MASK).backward()

    third = pytest.approx(1 / 3, rel=1e-8)
    assert values.grad.flatten().tolist() == [third, third, 0.0, third, 0.0, 0.0]


def test_the_mean_over_nothing_is_0():
    assert masked_mean(VALUES, torch.zeros_like(MASK)).item() == 0.0


def test_shapes_that_differ_are_refused_with_both_shapes():
    with pytest.raises(ValueError, match=r"values \(2, 3\), mask \(2,\)"):
        masked_mean(VALUES, torch.ones(2))


def test_the_variance_of_1_3_5_is_8_thirds_and_unbiased_4():
    values = torch.tensor([1.0, 3.0, 5.0, 1e30], dtype=torch.float64)
    mask = torch.tensor([1, 1, 1, 0])

    assert masked_var(values, mask, unbiased=False).item() == pytest.approx(8 / 3, rel=1e-7)
    assert masked_var(values, mask).item() == pytest.approx(4.0, rel=1e-7)


def test_one_value_has_no_unbiased_variance():
    with pytest.raises(ValueError, match="there are 1"):
        masked_var(torch.ones(2), torch.tensor([1, 0]))


# rows: 1 + 3 = 4 of two tokens, 5 of one token; R = 3
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 9 / 3),
        ("seq-mean-token-sum", (4 + 5) / 2),
        ("seq-mean-token-mean", (2 + 5) / 2),
        ("seq-mean-token-sum-norm", (4 + 5) / 2 / 3),
    ],
)
def test_each_mode_makes_one_number_of_the_tokens(mode, expected):
    assert aggregate_loss(VALUES, MASK, mode).item() == pytest.approx(expected, rel=1e-8)


def test_the_length_that_a_sum_is_divided_by_can_be_given():
    # (4 + 5) / 2 / 32, the 1e-8 beside 32 is too small to see
    loss = aggregate_loss(VALUES, MASK, "seq-mean-token-sum-norm", normalizer=32.0)

    assert loss.item() == pytest.approx(4.5 / 32, rel=1e-8)


def test_a_fully_masked_row_counts_as_a_row_of_0():
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])

    assert aggregate_loss(VALUES, mask, "seq-mean-token-sum").item() == 2.0


def test_an_unknown_mode_is_answered_with_the_right_one():
    with pytest.raises(ValueError, match="Did you mean 'token-mean'"):
        aggregate_loss(VALUES, MASK, "token_mean")


def test_equal_rewards_differ_from_their_mean_by_exactly_0():
    mean, std = mean_and_std([1.2, 1.2, 1.2])

    assert (1.2 - mean, std) == (0.0, 0.0)


def test_the_fixed_length_of_dr_grpo_has_an_epsilon():
    # rows sum to 4 and 5, mean 4.5, by a length of 1e-8 (+ 1e-8)
    loss = aggregate_loss(VALUES, MASK, "seq-mean-token-sum-norm", normalizer=1e-8)

    assert loss.item() == pytest.approx(4.5 / 2e-8)
