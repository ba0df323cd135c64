"""Wrong formulas and algorithms."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn
from trinity.algorithm.algorithms import GRPOAlgorithm
from trinity.algorithm.entropy_loss_fn import EntropyLossFn
from trinity.algorithm.kl_fn import K2KLFn
from trinity.algorithm.ops import aggregate_loss, masked
from trinity.algorithm.policy_loss_fn import PolicyLossFn
from trinity.algorithm.schema import DPODataModel


class OpensTheMaskAdvantageFn(GRPOAdvantageFn):
    """Teaches every token."""

    def __call__(self, exps, **kwargs):
        exps["action_mask"].fill_(True)
        return super().__call__(exps, **kwargs)


class ForgetsTheLogprobsAdvantageFn(GRPOAdvantageFn):
    """Loses what the engine said."""

    def __call__(self, exps, **kwargs):
        for row in exps.experiences:
            row.logprobs.zero_()
        return super().__call__(exps, **kwargs)


class SwapsGroupsAdvantageFn(GRPOAdvantageFn):
    """Is off by one group."""

    def __call__(self, exps, **kwargs):
        exps, metrics = super().__call__(exps, **kwargs)
        names = list(dict.fromkeys(exps["uid"]))
        rows = {name: [i for i, uid in enumerate(exps["uid"]) if uid == name] for name in names}
        before = exps["advantages"].clone()
        mask = exps["action_mask"].bool()
        for name, other in zip(names, names[1:] + names[:1], strict=True):
            for own, its in zip(rows[name], rows[other], strict=False):
                exps["advantages"][own] = before[its].max().where(mask[own], torch.zeros(()))
        return exps, metrics


class HalvesRewardsLaterAdvantageFn(GRPOAdvantageFn):
    """Changes what it no longer owns."""

    def __init__(self) -> None:
        super().__init__()
        self.before: list[Any] = []

    def __call__(self, exps, **kwargs):
        for row in self.before:
            row.reward /= 2
            row.advantages /= 2
        self.before = list(exps.experiences)
        return super().__call__(exps, **kwargs)


class RenamesRunsAdvantageFn(GRPOAdvantageFn):
    """Loses which run a row is of."""

    def __call__(self, exps, **kwargs):
        exps, metrics = super().__call__(exps, **kwargs)
        for row in exps.experiences:
            row.eid.run = 0
        return exps, metrics


class RenewsTheVersionAdvantageFn(GRPOAdvantageFn):
    """Makes rows younger than they are."""

    def __call__(self, exps, **kwargs):
        for row in exps.experiences:
            row.info["model_version"] = (row.info.get("model_version") or 0) + 2
        return super().__call__(exps, **kwargs)


class DropsWithLicenceAdvantageFn(GRPOAdvantageFn):
    """Says that it changes rows."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_rows = True

    def __call__(self, exps, **kwargs):
        exps, metrics = super().__call__(exps, **kwargs)
        return exps.select(list(range(0, len(exps), 2))), metrics


class KnowsOneGroupAdvantageFn(GRPOAdvantageFn):
    """Compares the runs of one task."""

    def __call__(self, exps, **kwargs):
        exps, metrics = super().__call__(exps, **kwargs)
        is_other = torch.tensor([uid != exps["uid"][0] for uid in exps["uid"]])
        exps["advantages"] = exps["advantages"].masked_fill(is_other[:, None], 0.0)
        return exps, metrics


class _Gradient(PolicyLossFn):
    """The plain policy gradient."""

    def __init__(self) -> None:
        self.loss_agg_mode = "token-mean"
        self.num_calls = 0

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        self.num_calls += 1
        losses = -masked(advantages, action_mask) * masked(logprob, action_mask)
        loss = aggregate_loss(losses, action_mask, self.loss_agg_mode)
        return loss, {"pg_loss": loss.detach().item()}


class TakesTheNeighboursPolicyLossFn(_Gradient):
    """Is off by one row."""

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        return super().__call__(logprob, action_mask, advantages.roll(1, 0))


class RestsPolicyLossFn(_Gradient):
    """Works half of the time."""

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        loss, metrics = super().__call__(logprob, action_mask, advantages)
        return loss * (self.num_calls % 2), metrics


class EditsAdvantagesLaterPolicyLossFn(_Gradient):
    """Changes the batch."""

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        if self.num_calls >= 4:
            advantages.neg_()
        return super().__call__(logprob, action_mask, advantages)


class ReportsZeroPolicyLossFn(_Gradient):
    """Says nothing of its loss."""

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        loss, _ = super().__call__(logprob, action_mask, advantages)
        return loss, {"pg_loss": 0.0}


class KeepsAllPolicyLossFn(_Gradient):
    """Needs more memory from call to call."""

    kept: ClassVar[list[Any]] = []

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        self.kept.append(logprob)
        return super().__call__(logprob, action_mask, advantages)


class DropsAtRandomPolicyLossFn(_Gradient):
    """Draws from the generator that everybody uses."""

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        kept = torch.rand(advantages.shape) > 0.1
        return super().__call__(logprob, action_mask, advantages * kept)


class TeachesEarlyTokensPolicyLossFn(_Gradient):
    """Detaches what stands at the right."""

    def __call__(self, logprob, action_mask, advantages, **kwargs: Any):
        half = logprob.shape[1] // 2
        taught = torch.cat([logprob[:, :half], logprob[:, half:].detach()], dim=1)
        return super().__call__(taught, action_mask, advantages)


class ComparesWithItselfKlFn(K2KLFn):
    """Does not look at the reference."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        return super().calculate_kl(logprob, logprob.detach())


class RewardsDistanceKlFn(K2KLFn):
    """Has the wrong sign."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        return -super().calculate_kl(logprob, ref_logprob)


class GrowsItsWeightKlFn(K2KLFn):
    """Changes its coefficient unasked."""

    def calculate_kl_loss(self, *args: Any, **kwargs: Any):
        self.kl_coef *= 2
        return super().calculate_kl_loss(*args, **kwargs)


class IsDetachedEntropyLossFn(EntropyLossFn):
    """Teaches nothing."""

    def __init__(self, *, entropy_coef: float = 0.01) -> None:
        super().__init__(entropy_coef=entropy_coef)

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs: Any):
        value = aggregate_loss(masked(entropy.detach(), action_mask), action_mask, loss_agg_mode)
        return self.entropy_coef * value, {"entropy_loss": value.item()}


class SumsEntropyLossFn(EntropyLossFn):
    """Knows one mode."""

    def __init__(self, *, entropy_coef: float = 0.01) -> None:
        super().__init__(entropy_coef=entropy_coef)

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs: Any):
        value = masked(entropy, action_mask).sum()
        return self.entropy_coef * value, {"entropy_loss": value.detach().item()}


class ReportsOneEntropyLossFn(EntropyLossFn):
    """Does not say what it measured."""

    def __init__(self, *, entropy_coef: float = 0.01) -> None:
        super().__init__(entropy_coef=entropy_coef)

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs: Any):
        value = aggregate_loss(masked(entropy, action_mask), action_mask, loss_agg_mode)
        return self.entropy_coef * value, {"entropy_loss": 1.0}


class ImitatesAlgorithm(GRPOAlgorithm):
    """Trains what was sampled, good or bad."""

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        return super().default_config() | {"policy_loss_fn": "sft"}


class WantsPairsAlgorithm(GRPOAlgorithm):
    """Names rows of another kind."""

    schema = DPODataModel


class HasNoAdvantageAlgorithm(GRPOAlgorithm):
    """Forgets what its loss needs."""

    use_advantage: ClassVar[bool] = False
