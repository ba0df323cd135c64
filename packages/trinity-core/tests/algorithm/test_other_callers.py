"""Losses and advantages answer callers that use verl's names, or have a list of experiences."""

from __future__ import annotations

import pytest
import torch
from trinity.algorithm import ADVANTAGE_FN, POLICY_LOSS_FN, AdvantageFn, PolicyLossFn
from trinity.algorithm.fields import field_names
from trinity.common.experience import EID, Experience


def group(rewards):
    return [
        Experience(
            tokens=[1, 2, 3],
            prompt_length=1,
            reward=reward,
            logprobs=[-1.0, -1.0],
            eid=EID(run=run),
        )
        for run, reward in enumerate(rewards)
    ]


def test_a_loss_takes_verls_names():
    loss_fn = POLICY_LOSS_FN.get("ppo")()
    tensors = [torch.full((2, 3), value) for value in (-1.0, -1.5, 0.5)]
    mask = torch.ones(2, 3, dtype=torch.bool)

    ours, _ = loss_fn(tensors[0], old_logprob=tensors[1], action_mask=mask, advantages=tensors[2])
    verls, _ = loss_fn(
        log_prob=tensors[0], old_log_probs=tensors[1], response_mask=mask, advantages=tensors[2]
    )

    assert torch.equal(ours, verls)


def test_a_loss_that_names_verls_fields_takes_ours():
    class Plain(PolicyLossFn):
        def __init__(self, backend: str = "verl") -> None:
            super().__init__(backend=backend)

        def __call__(self, logprob, response_mask, **kwargs):
            return (logprob * response_mask).sum(), kwargs

    loss, rest = Plain()(torch.ones(1, 2), action_mask=torch.ones(1, 2), extra=3)

    assert float(loss) == 2.0
    assert rest == {"extra": 3}
    assert field_names(Plain()) == ["response_mask"]


def test_an_advantage_function_takes_a_list_and_returns_one():
    rows = group([1.0, 0.0])

    returned, metrics = ADVANTAGE_FN.get("grpo")()(rows)

    assert [type(row) for row in returned] == [Experience, Experience]
    # mean 0.5, sample deviation sqrt(0.5): 0.5 / 0.70711 = 0.70711
    assert returned[0].advantages.tolist() == pytest.approx([0.70711, 0.70711], abs=1e-4)
    assert returned[1].advantages.tolist() == pytest.approx([-0.70711, -0.70711], abs=1e-4)
    assert metrics["group_advantages/reward_mean/mean"] == 0.5
    assert ADVANTAGE_FN.get("grpo")()([]) == ([], {})


def test_a_function_that_is_written_for_lists_gets_them_as_they_are():
    class OfLists(AdvantageFn):
        @classmethod
        def compute_in_trainer(cls):
            return False

        def __call__(self, exps, **kwargs):
            return exps, {"count": len(exps)}

    rows = group([1.0, 0.0])

    assert OfLists()(rows) == (rows, {"count": 2})
