from __future__ import annotations

import pytest
import torch
from trinity.algorithm import PolicyLossFn
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn
from trinity.algorithm.algorithms import GRPOAlgorithm
from trinity.algorithm.entropy_loss_fn import DefaultEntropyLossFn, NoEntropyLossFn
from trinity.algorithm.kl_fn import K2KLFn
from trinity.algorithm.policy_loss_fn.ppo import PPOPolicyLossFn
from trinity.algorithm.policy_loss_fn.sft import SFTPolicyLossFn
from trinity.common.batch import ExperienceBatch, Fields
from trinity.trainer.losses import weighted_loss
from trinity.trainer.microbatch import model_inputs
from trinity.trainer.parts import AlgorithmParts
from trinity.trainer.policy import load_policy

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
CUTS = [
    [[0, 1, 2, 3, 4, 5, 6, 7]],
    [[0, 1, 2, 3, 4], [5, 6, 7]],
    [[7], [0, 3], [1, 2, 4], [5, 6]],
]


class OwnMeanLossFn(PolicyLossFn):
    """Written to a tutorial: its own masked mean, no super().__init__(), nothing declared."""

    def __init__(self, tau=1.0):
        self.tau = tau

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss = -(advantages * logprob * action_mask).sum() / action_mask.sum() / (1.0 + self.tau)
        return loss, {"own_loss": loss.detach().item()}


def parts(policy_loss_fn, *, mode="token-mean", entropy_coef=0.0, kl_coef=0.0):
    return AlgorithmParts(
        algorithm=GRPOAlgorithm,
        policy_loss_fn=policy_loss_fn,
        entropy_loss_fn=DefaultEntropyLossFn(entropy_coef=entropy_coef)
        if entropy_coef
        else NoEntropyLossFn(),
        loss_agg_mode=mode,
        advantage_fn=None,
        kl_loss_fn=K2KLFn(kl_coef=kl_coef) if kl_coef else None,
        kl_penalty_fn=None,
    )


LOSSES = {
    **{f"ppo {mode}": parts(PPOPolicyLossFn(loss_agg_mode=mode)) for mode in MODES},
    "sft": parts(SFTPolicyLossFn()),
    "own mean": parts(OwnMeanLossFn()),
    **{
        f"ppo, entropy and kl {mode}": parts(
            PPOPolicyLossFn(), mode=mode, entropy_coef=0.1, kl_coef=0.1
        )
        for mode in MODES
    },
}


@pytest.fixture
def batch(ragged):
    batch, _ = GRPOAdvantageFn()(ExperienceBatch.from_experiences(ragged()))
    batch["ref_logprob"] = batch["old_logprob"] - 0.3
    return batch


@pytest.mark.parametrize("name", LOSSES)
def test_a_cut_changes_neither_loss_nor_gradient_in_float64(name, batch):
    def gradient(cut):
        generator = torch.Generator().manual_seed(3)
        shape = batch["action_mask"].shape
        logprob = -5.0 + torch.rand(shape, generator=generator, dtype=torch.float64)
        entropy = torch.rand(shape, generator=generator, dtype=torch.float64)
        logprob.requires_grad_()
        entropy.requires_grad_()
        total = 0.0
        for rows in cut:
            fields = Fields(dict(batch.select(rows).batch.items()))
            fields["logprob"], fields["entropy"] = logprob[rows], entropy[rows]
            share = weighted_loss(LOSSES[name], fields, whole_mask_BR=batch["action_mask"])
            share.loss.backward()
            total += share.metrics["loss"]
        return total, torch.cat(
            [logprob.grad, torch.zeros(0) if entropy.grad is None else entropy.grad]
        )

    # The own mean has no 1e-8 beside the number of tokens.
    tolerance = 1e-8 if name == "own mean" else 1e-10
    whole_loss, whole = gradient(CUTS[0])
    for cut in CUTS[1:]:
        loss, cut_gradient = gradient(cut)
        assert abs(loss - whole_loss) <= tolerance * abs(whole_loss)
        assert (cut_gradient - whole).norm() <= tolerance * whole.norm()


@pytest.mark.parametrize("name", LOSSES)
def test_a_cut_does_not_change_the_models_gradient(name, batch, tiny):
    policy = load_policy(tiny, device=torch.device("cpu"), precision="float32")

    def gradient(cut):
        policy.module.zero_grad()
        for rows in cut:
            part = batch.select(rows)
            inputs = model_inputs(part.experiences, part["action_mask"])
            scores = policy.score(inputs, entropy=True)
            fields = Fields(dict(part.batch.items()))
            fields["logprob"], fields["entropy"] = scores.logprob_BR, scores.entropy_BR
            share = weighted_loss(LOSSES[name], fields, whole_mask_BR=batch["action_mask"])
            share.loss.backward()
        return torch.cat([p.grad.flatten() for p in policy.module.parameters()])

    whole = gradient(CUTS[0])
    for cut in CUTS[1:]:
        assert (gradient(cut) - whole).norm() <= 5e-6 * whole.norm()


def test_metrics_of_the_parts_sum_to_those_of_the_whole(batch):
    logprob = torch.linspace(-6, -4, batch["action_mask"].numel()).reshape_as(batch["action_mask"])

    def metrics(cut):
        totals = {}
        for rows in cut:
            fields = Fields(dict(batch.select(rows).batch.items()))
            fields["logprob"] = logprob[rows]
            share = weighted_loss(
                LOSSES["ppo token-mean"], fields, whole_mask_BR=batch["action_mask"]
            )
            for name, value in share.metrics.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    assert metrics(CUTS[2]) == pytest.approx(metrics(CUTS[0]), rel=1e-5)


def test_padding_does_not_change_what_a_row_is_scored(batch, tiny):
    policy = load_policy(tiny, device=torch.device("cpu"), precision="float32")
    together = policy.score(model_inputs(batch.experiences, batch["action_mask"])).logprob_BR

    for row in range(len(batch)):
        part = batch.select([row])
        alone = policy.score(model_inputs(part.experiences, part["action_mask"])).logprob_BR
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-5)


def test_scores_are_those_of_a_plain_forward_at_the_rows_temperature(batch, tiny):
    policy = load_policy(tiny, device=torch.device("cpu"), precision="float32")
    row = batch.experiences[1]
    row.temperature = 0.7
    mask = torch.ones((1, row.response_length), dtype=torch.bool)

    ours = policy.score(model_inputs([row], mask)).logprob_BR[0]
    logits = policy.module(input_ids=row.tokens[None]).logits[0, row.prompt_length - 1 : -1] / 0.7
    plain = logits.log_softmax(-1)[
        torch.arange(row.response_length), row.tokens[row.prompt_length :]
    ]

    torch.testing.assert_close(ours, plain, rtol=0, atol=1e-5)
