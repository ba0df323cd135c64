"""What holds for both losses: they stay finite, look at no masked token, and can be cut."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from trinity.algorithm.fields import arguments_from
from trinity.algorithm.ops import LossAggMode, weight_of_part
from trinity.common.batch import Fields
from trinity_algo_opmd.loss import OPMDPolicyLossFn
from trinity_algo_opmd.sppo import SPPOPolicyLossFn

MODES = get_args(LossAggMode)
LOSSES = [(OPMDPolicyLossFn, {"tau": 0.5, "loss_agg_mode": mode}) for mode in MODES]
LOSSES += [(SPPOPolicyLossFn, {"epsilon": 0.3, "loss_agg_mode": mode}) for mode in MODES]
every_loss = pytest.mark.parametrize(
    ("cls", "args"), LOSSES, ids=[f"{cls.__name__}-{args['loss_agg_mode']}" for cls, args in LOSSES]
)


def some_fields(*, dtype=torch.float64):
    """Return 8 ragged rows with holes, off the edges of SPPO's range."""
    draw = torch.Generator().manual_seed(1)

    def noise(scale):
        return (torch.randn(8, 6, generator=draw, dtype=torch.float64) * scale).to(dtype)

    lengths = torch.randint(1, 7, (8, 1), generator=draw)
    mask = (torch.arange(6) < lengths) & (noise(1.0) > -1.0)
    mask[:, 0] = True
    old = -1.5 + noise(0.3)
    return {
        "logprob": old + noise(0.2),
        "old_logprob": old,
        "advantages": noise(1.0),
        "action_mask": mask,
    }


def gradient_of(loss_fn, fields):
    leaf = fields["logprob"].clone().requires_grad_()
    loss, metrics = loss_fn(**arguments_from(loss_fn, Fields(fields | {"logprob": leaf})))
    loss.backward()
    return loss.item(), leaf.grad, metrics


@every_loss
@pytest.mark.parametrize("distance", [200.0, -200.0])
def test_a_log_ratio_of_200_has_a_finite_loss_and_gradient_in_float32(cls, args, distance):
    fields = some_fields(dtype=torch.float32)
    fields["old_logprob"] = fields["logprob"] - distance

    loss, gradient, _ = gradient_of(cls(**args), fields)

    assert math.isfinite(loss)
    assert gradient.isfinite().all()


@every_loss
@pytest.mark.parametrize("garbage", [1e30, -math.inf, math.nan])
def test_what_stands_under_the_mask_has_no_influence(cls, args, garbage):
    clean, spoilt = some_fields(), some_fields()
    for name in ("logprob", "old_logprob", "advantages"):
        spoilt[name] = spoilt[name].masked_fill(~spoilt["action_mask"], garbage)

    loss, gradient, metrics = gradient_of(cls(**args), clean)
    same_loss, same_gradient, same_metrics = gradient_of(cls(**args), spoilt)

    assert (same_loss, same_metrics) == (loss, metrics)
    assert torch.equal(same_gradient, gradient)


@every_loss
@pytest.mark.parametrize("cut", [[4, 4], [1, 7], [2, 2, 2, 2], [1] * 8])
def test_micro_batches_sum_to_the_gradient_of_the_batch(cls, args, cut):
    loss_fn, fields = cls(**args), some_fields()
    loss, gradient, _ = gradient_of(loss_fn, fields)
    summed, total = torch.zeros_like(gradient), 0.0
    for rows in torch.arange(8).split(cut):
        part = {name: value[rows] for name, value in fields.items()}
        weight = weight_of_part(loss_fn.normalizer, part["action_mask"], fields["action_mask"])
        share, part_gradient, _ = gradient_of(loss_fn, part)
        summed[rows] += weight * part_gradient
        total += weight * share

    assert gradient.norm() > 0
    assert (summed - gradient).norm() / gradient.norm() < 1e-10
    assert total == pytest.approx(loss, rel=1e-10)
