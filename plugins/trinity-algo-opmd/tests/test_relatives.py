"""AsymRE and SPPO, which share OPMD's loss and advantage."""

from __future__ import annotations

import math

import pytest
import torch
from trinity.algorithm import ADVANTAGE_FN, ALGORITHM_TYPE, POLICY_LOSS_FN
from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience
from trinity_algo_opmd.algorithm import ASYMREAlgorithm, SPPOAlgorithm
from trinity_algo_opmd.asymre import ASYMREAdvantageFn, ASYMREBatchAdvantageFn
from trinity_algo_opmd.sppo import SPPOPolicyLossFn


def a_batch(*rewards):
    return ExperienceBatch.from_experiences(
        [
            Experience(tokens=[1, 2], reward=reward, eid=EID(0, 0, run))
            for run, reward in enumerate(rewards)
        ]
    )


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


def sppo(logprob, *, advantages, old=0.0, mask=1.0):
    logprob = row(logprob).requires_grad_()
    loss, metrics = SPPOPolicyLossFn(epsilon=0.3)(
        logprob, old_logprob=row(old), action_mask=row(mask), advantages=row(advantages)
    )
    loss.backward()
    return loss.item(), logprob.grad.item(), metrics


def test_asymre_lowers_the_baseline():
    # mean 0.5, baseline 0.4
    batch, metrics = ASYMREAdvantageFn()(a_batch(1.0, 0.0))

    assert batch["advantages"][:, 0].tolist() == pytest.approx([0.6, -0.4])
    assert metrics["group_advantages/group_baseline/mean"] == pytest.approx(0.4)


def test_a_group_of_one_keeps_its_reward_unshifted():
    assert ASYMREAdvantageFn(baseline_shift=-5.0)(a_batch(3.0))[0]["advantages"].tolist() == [[3.0]]


def test_in_the_trainer_asymre_sums_the_token_rewards():
    batch, _ = ASYMREBatchAdvantageFn()(a_batch(1.0, 0.0))

    assert batch["advantages"][:, 0].tolist() == pytest.approx([0.6, -0.4])


def test_sppo_is_the_log_ratio_in_range():
    # ln 1.2 is within ln 1.3: loss -2 ln 1.2, gradient -2
    loss, gradient, metrics = sppo(math.log(1.2), advantages=2.0)

    assert (loss, gradient) == (pytest.approx(-2 * math.log(1.2)), pytest.approx(-2.0))
    assert metrics["pg_clipfrac"] == 0.0


@pytest.mark.parametrize("logprob", [math.log(1.4), -math.log(1.4), 200.0])
def test_out_of_range_sppo_teaches_nothing(logprob):
    loss, gradient, metrics = sppo(logprob, advantages=2.0)

    assert (loss, gradient) == (0.0, 0.0)
    assert metrics["pg_clipfrac"] == pytest.approx(1.0)


def test_sppo_does_not_see_masked_tokens():
    assert sppo(1e30, advantages=math.nan, old=-1e30, mask=0.0)[:2] == (0.0, 0.0)


def test_an_epsilon_of_0_is_refused():
    with pytest.raises(ValueError, match=r"epsilon is 0\.0; it must be above 0"):
        SPPOPolicyLossFn(epsilon=0.0)


def test_the_parts_arrive_by_the_entry_point():
    assert ADVANTAGE_FN.get("asymre") is ASYMREAdvantageFn
    assert POLICY_LOSS_FN.get("sppo") is SPPOPolicyLossFn
    assert ALGORITHM_TYPE.get("asymre") is ASYMREAlgorithm
    assert ALGORITHM_TYPE.get("sppo") is SPPOAlgorithm
