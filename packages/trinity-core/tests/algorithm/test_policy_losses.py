from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm import PolicyLossFn
from trinity.algorithm.fields import arguments_from, with_whole
from trinity.algorithm.policy_loss_fn.dpo import DPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.ppo import PPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.sft import SFTPolicyLossFn
from trinity.common.batch import Fields


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def test_a_ratio_of_2_with_a_good_token_is_clipped_at_1_2():
    # A = 1, r = e^(ln 2) = 2, clip to 1.2: the loss is -1.2
    loss, metrics = PPOPolicyLossFn()(
        logprob=row(math.log(2.0)),
        old_logprob=row(0.0),
        action_mask=row(1.0),
        advantages=row(1.0),
    )

    assert loss.item() == pytest.approx(-1.2)
    assert metrics["pg_clipfrac"] == pytest.approx(1.0)


def test_a_bad_token_that_became_likely_costs_no_more_than_the_cap():
    # A = -1, r = 8: max(8, 1.2) = 8, capped at 3
    loss, metrics = PPOPolicyLossFn()(
        logprob=row(math.log(8.0)),
        old_logprob=row(0.0),
        action_mask=row(1.0),
        advantages=row(-1.0),
    )

    assert loss.item() == pytest.approx(3.0)
    assert metrics["pg_clipfrac_lower"] == pytest.approx(1.0)


def test_a_side_without_its_own_range_takes_the_common_one():
    loss_fn = PPOPolicyLossFn(clip_range=0.3, clip_range_high=0.5)

    assert (loss_fn.clip_range_low, loss_fn.clip_range_high) == (0.3, 0.5)


def test_a_wild_log_ratio_is_held_at_20():
    # A = -1, no cap to speak of: the loss is e^20 and its gradient 0, instead of infinity and NaN
    logprob = row(900.0).requires_grad_()
    loss, _ = PPOPolicyLossFn(clip_ratio_c=1e12)(
        logprob=logprob, old_logprob=row(0.0), action_mask=row(1.0), advantages=row(-1.0)
    )
    loss.backward()

    assert loss.item() == pytest.approx(math.exp(20.0))
    assert logprob.grad.item() == 0.0


@pytest.mark.parametrize("loss_fn", [PPOPolicyLossFn(), SFTPolicyLossFn()], ids=["ppo", "sft"])
@pytest.mark.parametrize("garbage", [1e30, -1e30, math.inf, math.nan])
def test_garbage_under_the_mask_changes_neither_loss_nor_gradient(loss_fn, garbage):
    def loss_and_gradient(hidden):
        logprob = row(-1.0, hidden).requires_grad_()
        fields = {
            "logprob": logprob,
            "old_logprob": row(-1.5, hidden),
            "advantages": row(0.5, -hidden),
            "action_mask": torch.tensor([[True, False]]),
        }
        loss, _ = loss_fn(**arguments_from(loss_fn, fields))
        loss.backward()
        return loss.item(), logprob.grad.tolist()

    assert loss_and_gradient(garbage) == loss_and_gradient(0.0)


def test_a_clip_ratio_of_1_is_refused():
    with pytest.raises(ValueError, match=r"clip_ratio_c is 1\.0; it must be above 1"):
        PPOPolicyLossFn(clip_ratio_c=1.0)


def test_a_misspelt_mode_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="Did you mean 'token-mean'"):
        SFTPolicyLossFn(loss_agg_mode="token-men")


def test_default_args_are_those_of_the_constructor():
    assert SFTPolicyLossFn.default_args() == {"loss_agg_mode": "token-mean"}
    assert PPOPolicyLossFn.default_args()["clip_range"] == 0.2


class OwnLossFn(PolicyLossFn):
    """Written to a tutorial: no super().__init__(), verl's names, **kwargs."""

    def __init__(self, scale: float = 2.0) -> None:
        self.scale = scale

    def __call__(self, log_prob, response_mask, advantages, bonus=None, **kwargs):
        loss = -(advantages * log_prob * response_mask).sum() / response_mask.sum() * self.scale
        return loss, {"own_loss": loss.item()}


def test_the_fields_of_a_loss_are_its_parameter_names():
    assert OwnLossFn().select_keys == ["response_mask", "advantages", "bonus"]
    assert PPOPolicyLossFn().select_keys == ["old_logprob", "action_mask", "advantages"]


def test_a_loss_with_other_names_for_the_fields_is_served():
    fields = Fields(
        {"logprob": row(-1.0), "action_mask": row(1.0), "advantages": row(3.0), "rewards": row(9.0)}
    )

    loss, metrics = OwnLossFn()(**arguments_from(OwnLossFn(), fields))

    assert loss.item() == 6.0  # -(3 * -1) / 1 * 2
    assert metrics == {"own_loss": 6.0}


def test_a_loss_of_several_parts_may_ask_for_fields_of_the_whole_batch():
    class TwoParts(OwnLossFn):
        def __call__(self, logprob, action_mask, whole_action_mask=None, whole_bonus=None):
            return logprob, {}

    part, whole = {"action_mask": row(1.0)}, {"action_mask": row(1.0, 1.0), "rewards": row(9.0)}

    assert with_whole(TwoParts(), part, whole).keys() == {"action_mask", "whole_action_mask"}


def test_a_field_that_is_not_there_is_answered_with_those_that_are(golden):
    class NeedsValues(PolicyLossFn):
        def __call__(self, logprob, advantage, **kwargs):
            return logprob, {}

    fields = Fields({"logprob": row(-1.0), "advantages": row(1.0), "action_mask": row(1.0)})

    with pytest.raises(ValueError, match="asks for 'advantage'") as caught:
        arguments_from(NeedsValues(), fields)

    golden(str(caught.value), "loss_field_unknown")


@pytest.mark.parametrize(
    ("mode", "normalizer"),
    [
        ("token-mean", "tokens"),
        ("seq-mean-token-sum", "rows"),
        ("seq-mean-token-mean", "rows"),
        ("seq-mean-token-sum-norm", "rows"),
    ],
)
def test_a_loss_divides_by_what_its_mode_says(mode, normalizer):
    assert PPOPolicyLossFn(loss_agg_mode=mode).normalizer == normalizer


def test_a_loss_without_a_mode_divides_by_tokens_unless_it_says_otherwise():
    class ByRows(OwnLossFn):
        normalizer = "rows"

    assert OwnLossFn().normalizer == "tokens"
    assert ByRows().normalizer == "rows"


def test_dpo_is_a_mean_over_pairs():
    # z: 1, 0 and 0, 2; beta 1: -ln sigmoid(1) and -ln sigmoid(-2)
    fields = {
        "logprob": torch.tensor([[1.0], [0.0], [0.0], [2.0]], dtype=torch.float64),
        "ref_logprob": torch.zeros(4, 1, dtype=torch.float64),
        "action_mask": torch.ones(4, 1),
    }
    loss, metrics = DPOPolicyLossFn(beta=1.0)(**fields)

    expected = (math.log1p(math.exp(-1.0)) + math.log1p(math.exp(2.0))) / 2
    assert loss.item() == pytest.approx(expected)
    assert metrics["accuracy_mean"] == 0.5
    assert metrics["chosen_reward"] == 0.5


def test_dpo_refuses_half_a_pair():
    one = row(0.0)
    with pytest.raises(ValueError, match="DPO needs pairs of rows, there are 1"):
        DPOPolicyLossFn()(logprob=one, ref_logprob=one, action_mask=one)
