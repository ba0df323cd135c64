"""The mismatch of rollout engine and trainer."""

from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm.rollout_correction import RolloutCorrection, with_weighted_gradient

MASK = torch.tensor([[True, True, False], [True, True, True]])
#: w of the tokens: 4, 1/2, masked; 1, 1, 1
OLD = torch.tensor([[math.log(4.0), math.log(0.5), 1e30], [0.0, 0.0, 0.0]], dtype=torch.float64)
ROLLOUT = torch.zeros(2, 3, dtype=torch.float64)


def corrected(**options):
    return RolloutCorrection(**options).of(OLD, ROLLOUT, MASK)


def test_a_token_is_weighed_by_its_ratio_up_to_the_threshold():
    result = corrected(rollout_is="token")

    assert result.weight_BR.tolist() == [[2.0, 0.5, 0.0], [1.0, 1.0, 1.0]]
    assert torch.equal(result.mask_BR, MASK)
    assert result.metrics["rollout_correction/truncated_frac"] == pytest.approx(0.2)
    assert result.metrics["rollout_correction/rejected_frac"] == 0.0


def test_a_response_is_weighed_by_the_product_of_its_ratios():
    # 4 / 2 = 2
    weights = corrected(rollout_is="sequence", rollout_is_threshold=9.0).weight_BR

    assert weights[0].tolist() == pytest.approx([2.0, 2.0, 0.0])


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"rollout_rs": "sequence", "rollout_rs_threshold": 1.9}, [False, True]),
        ({"rollout_rs": "sequence", "rollout_rs_threshold": 2.1}, [True, True]),
        # the geometric mean is sqrt(2)
        ({"rollout_rs": "geometric", "rollout_rs_threshold": 1.5}, [True, True]),
        ({"rollout_rs": "geometric", "rollout_rs_threshold_lower": 1.1}, [True, False]),
    ],
)
def test_a_row_outside_the_thresholds_is_left_out_whole(options, kept):
    result = corrected(**options)

    assert result.mask_BR.any(-1).tolist() == kept
    assert (result.weight_BR[~result.mask_BR] == 0).all()
    assert result.metrics["rollout_correction/rejected_frac"] == kept.count(False) / 2


def test_a_weight_multiplies_the_gradient_and_leaves_the_value():
    logprob = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    weighted = with_weighted_gradient(logprob, torch.tensor([[0.5, 2.0]]))
    weighted.exp().sum().backward()

    assert weighted.tolist() == [[-1.0, -2.0]]
    assert logprob.grad.tolist() == [[0.5 * math.exp(-1), 2 * math.exp(-2)]]


@pytest.mark.parametrize("distance", [300.0, -300.0])
def test_a_wild_ratio_is_finite(distance):
    for mode in ("token", "sequence"):
        result = RolloutCorrection(rollout_is=mode, rollout_rs="geometric").of(
            ROLLOUT + distance, ROLLOUT, MASK
        )
        assert result.weight_BR.isfinite().all()


def test_thresholds_that_keep_no_row_are_refused():
    with pytest.raises(ValueError, match=r"keeps rows from 2\.5 to 2\.0, which is none"):
        RolloutCorrection(rollout_rs="geometric", rollout_rs_threshold_lower=2.5)
    with pytest.raises(ValueError, match=r"keeps rows from 1\.25 to 0\.8, which is none"):
        RolloutCorrection(rollout_rs="sequence", rollout_rs_threshold=0.8)
