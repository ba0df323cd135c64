"""What holds for every policy loss, the core's too, and what each paper says by hand."""

from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm.fields import arguments_from, with_whole
from trinity.algorithm.ops import weight_of_part
from trinity.algorithm.policy_loss_fn.ppo import PPOPolicyLossFn
from trinity.common.batch import Fields
from trinity.extend import get_manager
from trinity_algorithms.policy_loss_fn.cispo import CISPOPolicyLossFn
from trinity_algorithms.policy_loss_fn.gspo import GSPOPolicyLossFn
from trinity_algorithms.policy_loss_fn.importance_sampling import ImportanceSamplingPolicyLossFn
from trinity_algorithms.policy_loss_fn.m2po import M2POPolicyLossFn
from trinity_algorithms.policy_loss_fn.rec import RECPolicyLossFn
from trinity_algorithms.policy_loss_fn.sapo import SAPOPolicyLossFn
from trinity_algorithms.policy_loss_fn.sft_weighted import SFTISPolicyLossFn, SFTPhiPolicyLossFn
from trinity_algorithms.policy_loss_fn.topr import TOPRPolicyLossFn

LOSSES = [
    ("ppo", {}),
    ("ppo", {"enable_sequence_masking": True}),
    ("gspo", {}),
    ("cispo", {"enable_mask_clip": True}),
    ("sapo", {}),
    ("m2po", {}),
    ("topr", {}),
    ("rec", {"clip_mode": "ring", "weight": "importance_sampling"}),
    ("rec", {"clip_mode": "gspo-one-side", "weight": "gspo_importance_sampling"}),
    ("rec", {"regularizer": "k2", "regularizer_coef": 0.1}),
    ("importance_sampling", {}),
    ("sft", {}),
    ("sft_is", {"loss_agg_mode": "seq-mean-token-mean"}),
    ("sft_phi", {"cutoff_prob": 0.7}),
    ("dpo", {}),
    ("mix", {"mu": 0.3}),
    ("mix", {"mu": 0.3, "loss_agg_mode": "seq-mean-token-sum"}),
    ("mix_chord", {"mu_peak": 0.4, "mu_valley": 0.4}),
]
every_loss = pytest.mark.parametrize(
    ("name", "args"), LOSSES, ids=["-".join([n, *map(str, a.values())]) for n, a in LOSSES]
)


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def a_loss(name, args):
    return get_manager().load("policy_loss_fn", name)(**args)


def some_fields(*, num_rows=8, length=6, dtype=torch.float64, seed=1):
    """Return ragged rows with holes, off the kinks of clip and abs."""
    draw = torch.Generator().manual_seed(seed)

    def noise(scale):
        return torch.randn(num_rows, length, generator=draw, dtype=torch.float64).to(dtype) * scale

    lengths = torch.randint(1, length + 1, (num_rows, 1), generator=draw)
    mask = (torch.arange(length) < lengths) & (noise(1.0) > -1.0)
    mask[:, 0] = True
    old = -1.5 + noise(0.3)
    logprob = old + noise(0.2)
    return {
        "logprob": logprob,
        "policy_logprob": logprob,
        "old_logprob": old,
        "ref_logprob": old + noise(0.2),
        "advantages": noise(1.0),
        "action_mask": mask,
        "expert_mask": torch.arange(num_rows) % 4 == 1,
        "step": torch.full((num_rows,), 3, dtype=torch.int32),
    }


def gradient_of(loss_fn, fields, *, whole=None):
    leaf = fields["logprob"].clone().requires_grad_()
    given = with_whole(loss_fn, fields | {"logprob": leaf}, whole or {})
    loss, metrics = loss_fn(**arguments_from(loss_fn, Fields(given)))
    loss.backward()
    return loss.item(), leaf.grad, metrics


@every_loss
@pytest.mark.parametrize("distance", [200.0, -200.0])
def test_a_log_ratio_of_200_has_a_finite_loss_and_gradient_in_float32(name, args, distance):
    fields = some_fields(dtype=torch.float32)
    for other in ("old_logprob", "ref_logprob"):
        fields[other] = fields["logprob"] - distance

    loss, gradient, _ = gradient_of(a_loss(name, args), fields)

    assert math.isfinite(loss)
    assert gradient.isfinite().all()


@every_loss
@pytest.mark.parametrize("garbage", [1e30, -1e30, math.inf, math.nan])
def test_what_stands_under_the_mask_has_no_influence(name, args, garbage):
    clean, spoilt = some_fields(), some_fields()
    for field in ("logprob", "policy_logprob", "old_logprob", "ref_logprob", "advantages"):
        spoilt[field] = spoilt[field].masked_fill(~spoilt["action_mask"], garbage)

    loss, gradient, metrics = gradient_of(a_loss(name, args), clean)
    same_loss, same_gradient, same_metrics = gradient_of(a_loss(name, args), spoilt)

    assert same_loss == loss
    assert torch.equal(same_gradient, gradient)
    assert same_metrics == metrics
    assert (gradient[~clean["action_mask"]] == 0).all()


@every_loss
@pytest.mark.parametrize("cut", [[8], [4, 4], [2, 6], [2, 2, 2, 2]])
def test_micro_batches_sum_to_the_gradient_of_the_batch(name, args, cut):
    loss_fn, fields = a_loss(name, args), some_fields()
    loss, gradient, _ = gradient_of(loss_fn, fields, whole=fields)
    summed, total = torch.zeros_like(gradient), 0.0
    for rows in torch.arange(8).split(cut):
        part = {field: value[rows] for field, value in fields.items()}
        weight = weight_of_part(loss_fn.normalizer, part["action_mask"], fields["action_mask"])
        share, part_gradient, _ = gradient_of(loss_fn, part, whole=fields)
        summed[rows] += weight * part_gradient
        total += weight * share

    assert (summed - gradient).norm() / gradient.norm() < 1e-10
    assert total == pytest.approx(loss, rel=1e-10)


def test_importance_sampling_holds_a_log_ratio_at_20():
    logprob = row(900.0).requires_grad_()
    loss, metrics = ImportanceSamplingPolicyLossFn()(
        logprob=logprob, old_logprob=row(0.0), action_mask=row(1.0), advantages=row(1.0)
    )
    loss.backward()

    assert loss.item() == pytest.approx(-math.exp(20.0))
    assert metrics["approx_kl"] == pytest.approx(-20.0)
    assert logprob.grad.item() == 0.0


def test_one_side_with_importance_sampling_has_the_gradient_of_ppo():
    fields = some_fields(num_rows=32)
    _, ppo, _ = gradient_of(PPOPolicyLossFn(clip_ratio_c=1e9), fields)
    rec = RECPolicyLossFn(clip_mode="one-side", weight="importance_sampling")
    _, same, _ = gradient_of(rec, fields)

    torch.testing.assert_close(same, ppo, rtol=1e-12, atol=1e-15)


def test_on_policy_the_gradient_of_sapo_is_the_policy_gradient():
    # r = 1: -A (4 / tau) tau s (1 - s) = -A with s = 1/2; the gate's value would be 2 / tau
    fields = some_fields()
    fields["logprob"] = fields["old_logprob"].clone()
    _, gradient, _ = gradient_of(SAPOPolicyLossFn(), fields)

    mask = fields["action_mask"]
    expected = torch.where(mask, -fields["advantages"], 0.0) / (mask.sum() + 1e-8)
    torch.testing.assert_close(gradient, expected)


def test_gspo_weighs_each_token_by_the_ratio_of_its_row():
    # mean of 0.2 and 0.4: s = 0.3; with a wide range the loss is -A e^0.3, the gradient the same
    fields = {
        "logprob": row(-0.8, -0.6),
        "old_logprob": row(-1.0, -1.0),
        "action_mask": row(1.0, 1.0),
        "advantages": row(2.0, 2.0),
    }
    loss, gradient, metrics = gradient_of(GSPOPolicyLossFn(clip_range=9.0), fields)

    assert loss == pytest.approx(-2.0 * math.exp(0.3))
    assert gradient.tolist() == [[pytest.approx(-math.exp(0.3))] * 2]  # 2 A e^s / 2 tokens
    assert metrics["ppo_kl_seq"] == pytest.approx(-0.3)


def test_gspo_without_arguments_has_the_ranges_of_the_paper():
    assert (GSPOPolicyLossFn().clip_range_low, GSPOPolicyLossFn().clip_range_high) == (3e-4, 4e-4)
    assert GSPOPolicyLossFn(clip_range=0.1).clip_range_low == 0.1


def test_cispo_keeps_the_gradient_of_a_clipped_token():
    # r = 2 is clipped to 1.28: loss -1.28 logprob, gradient -1.28
    fields = {
        "logprob": row(math.log(2.0)),
        "old_logprob": row(0.0),
        "action_mask": row(1.0),
        "advantages": row(1.0),
    }

    assert gradient_of(CISPOPolicyLossFn(), fields)[1].item() == pytest.approx(-1.28)
    assert gradient_of(CISPOPolicyLossFn(enable_mask_clip=True), fields)[1].item() == 0.0


def test_m2po_masks_the_farthest_tokens_of_the_batch_that_move_farther_away():
    # d = .1 .3 .5 and -.4; A > 0 but for the last: d^2 of the region .01 .09 .25 .16, in order
    # .01 .09 .16 .25 with means .01 .05 .087 .1275: at 0.06 the first two are kept; a token with
    # d < 0 and A > 0 is outside, whatever its distance
    fields = {
        "old_logprob": row(0.0, 0.0, 0.0, 0.0, 0.0),
        "logprob": row(0.1, 0.3, 0.5, -0.4, -2.0),
        "policy_logprob": row(0.1, 0.3, 0.5, -0.4, -2.0),
        "action_mask": row(1.0, 1.0, 1.0, 1.0, 1.0),
        "advantages": row(2.0, 2.0, 2.0, -1.0, 2.0),
    }

    loss, gradient, metrics = gradient_of(M2POPolicyLossFn(m2_threshold=0.06), fields)

    kept = [2 * math.exp(0.1), 2 * math.exp(0.3), 0.0, 0.0, 2 * math.exp(-2.0)]
    assert loss == pytest.approx(-sum(kept) / 5)  # of all five tokens
    assert gradient.tolist() == [[pytest.approx(-value / 5) for value in kept]]
    assert metrics["m2po/m2_before"] == pytest.approx(0.1275)
    assert metrics["m2po/m2_after"] == pytest.approx(0.05)
    assert metrics["m2po/masked_fraction"] == pytest.approx(0.4)
    assert metrics["m2po/trust_region_fraction"] == pytest.approx(0.8)


def test_m2po_looks_at_the_policy_that_sampled_where_another_one_is_the_old_one():
    # recomputed old log-probabilities equal the policy's: seen from them nothing has moved
    fields = {
        "old_logprob": row(0.5),
        "sampled_logprob": row(0.0),
        "logprob": row(0.5),
        "policy_logprob": row(0.5),
        "action_mask": row(1.0),
        "advantages": row(1.0),
    }

    loss, gradient, metrics = gradient_of(M2POPolicyLossFn(), fields)

    assert (loss, gradient.item(), metrics["m2po/m2_before"]) == (0.0, 0.0, 0.25)


def test_topr_tapers_a_bad_response_by_the_ratio_of_the_whole_response():
    # log rho = -0.5 - 0.5 = -1: alpha = 1/e for both tokens
    fields = {
        "logprob": row(-1.5, -2.5),
        "old_logprob": row(-1.0, -2.0),
        "action_mask": row(1.0, 1.0),
        "advantages": row(-1.0, -1.0),
    }

    loss, gradient, _ = gradient_of(TOPRPolicyLossFn(), fields)

    assert loss == pytest.approx(math.exp(-1.0) * (-1.5 - 2.5) / 2)
    assert gradient.tolist() == [[pytest.approx(math.exp(-1.0) / 2)] * 2]


def test_topr_tapers_an_advantage_at_the_threshold():
    # rho = 1/e; A = 0.5 is not above 0.5
    fields = {
        "logprob": row(-2.0),
        "old_logprob": row(-1.0),
        "action_mask": row(1.0),
        "advantages": row(0.5),
    }

    loss, _, metrics = gradient_of(TOPRPolicyLossFn(advantage_threshold=0.5), fields)

    assert metrics["avg_alpha"] == pytest.approx(math.exp(-1.0))
    assert loss == pytest.approx(math.exp(-1.0) * 0.5 * 2.0)


def test_weighted_imitation_detaches_its_weight():
    # p = e^-1: gradients -p and -p (1 - p)
    fields = {"logprob": row(-1.0), "action_mask": row(1.0)}
    p = math.exp(-1.0)

    assert gradient_of(SFTISPolicyLossFn(), fields)[1].item() == pytest.approx(-p)
    assert gradient_of(SFTPhiPolicyLossFn(), fields)[1].item() == pytest.approx(-p * (1 - p))
    # above the cutoff there is no gradient: e^-1 = 0.37
    assert gradient_of(SFTPhiPolicyLossFn(cutoff_prob=0.3), fields)[1].item() == 0.0


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("sft_phi", {"cutoff_prob": 0.0}, "cutoff_prob is 0.0; it must be above 0"),
        ("rec", {"epsilon_low": 1.5}, "epsilon_low is 1.5; it must be above 0 and at most 1"),
        ("rec", {"clip_mode": "oneside"}, "Did you mean 'one-side'"),
        ("rec", {"weight": "adv"}, "weight is 'adv'"),
        ("m2po", {"m2_threshold": -0.1}, "m2_threshold is -0.1; it must be finite, and 0 or above"),
        ("m2po", {"log_ratio_clip": 0.0}, "log_ratio_clip is 0.0; it must be above 0"),
        ("sapo", {"tau_pos": 2.0, "tau_neg": 1.0}, "0 < tau_pos <= tau_neg"),
        ("dpo", {"beta": 0.0}, "beta is 0.0; it must be above 0"),
        ("dpo", {"label_smoothing": 0.7}, "it must be from 0 to 0.5"),
        ("mix", {"mu": 1.5}, "mu is 1.5; it must be from 0 to 1"),
        ("mix_chord", {"mu_peak": 1.5}, "mu_peak is 1.5; it must be from 0 to 1"),
        ("mix_chord", {"mu_valley": -0.1}, "mu_valley is -0.1; it must be from 0 to 1"),
        ("gspo", {"loss_agg_mode": "token-men"}, "Did you mean 'token-mean'"),
    ],
)
def test_an_argument_that_makes_no_sense_is_refused(name, args, message):
    with pytest.raises(ValueError, match=message):
        a_loss(name, args)
