"""Advantages and losses that run to their end, each with one mistake."""

import torch
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn, GRPOBatchAdvantageFn
from trinity.algorithm.policy_loss_fn.ppo import PPOPolicyLossFn


class SwapsTwo(GRPOAdvantageFn):
    """Swaps the advantages of the first two rows."""

    def __call__(self, exps, **kwargs):
        exps, metrics = super().__call__(exps, **kwargs)
        score = exps["advantages"].clone()
        score[[0, 1]] = score[[1, 0]]
        exps["advantages"] = score
        return exps, metrics


class ForgetsAGroup(GRPOAdvantageFn):
    """Gives the last group no advantage."""

    def __call__(self, exps, **kwargs):
        exps, metrics = super().__call__(exps, **kwargs)
        exps["advantages"][-4:] = 0.0
        return exps, metrics


class HalvesRewards(GRPOAdvantageFn):
    """Halves the rewards of its input in place."""

    def __call__(self, exps, **kwargs):
        exps["rewards"].mul_(0.5)
        for experience in exps.experiences:
            experience.reward *= 0.5
        return super().__call__(exps, **kwargs)


class CoolsLogprobs(GRPOAdvantageFn):
    """Lowers the log-probabilities of its input in place."""

    def __call__(self, exps, **kwargs):
        for experience in exps.experiences:
            experience.logprobs -= 0.2
        return super().__call__(exps, **kwargs)


class MasksLate(GRPOAdvantageFn):
    """Keeps its input, and masks the first half of it when it is called again."""

    held = None

    def __call__(self, exps, **kwargs):
        if self.held is not None:
            for experience in self.held:
                experience.action_mask[: len(experience.action_mask) // 2] = False
        self.held = list(exps.experiences)
        return super().__call__(exps, **kwargs)


class WritesToTokens(GRPOAdvantageFn):
    """Writes a token of its own over the last of each row."""

    def __call__(self, exps, **kwargs):
        for experience in exps.experiences:
            experience.tokens[-1] = 7
        return super().__call__(exps, **kwargs)


class ScalesInTheTrainer(GRPOBatchAdvantageFn):
    """Is called by the trainer, and doubles the old log-probabilities of the batch in place."""

    def __call__(self, exps, **kwargs):
        exps["old_logprob"].mul_(2.0)
        return super().__call__(exps, **kwargs)


class TurnsOneInSeven(GRPOAdvantageFn):
    """Turns the sign of every seventh advantage."""

    def __call__(self, exps, **kwargs):
        exps, metrics = super().__call__(exps, **kwargs)
        exps["advantages"][::7] *= -1
        return exps, metrics


class ClipsInPlace(PPOPolicyLossFn):
    """Clips the advantages of its input in place."""

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        advantages.clamp_(-0.5, 0.5)
        return super().__call__(logprob, old_logprob, action_mask, advantages, **kwargs)


class ShiftsOld(PPOPolicyLossFn):
    """Adds 0.1 to the old log-probabilities of its input in place."""

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        old_logprob.add_(0.1)
        return super().__call__(logprob, old_logprob, action_mask, advantages, **kwargs)


class LeavesOutTheLast(PPOPolicyLossFn):
    """Leaves the last row of each micro-batch out."""

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        mask = action_mask.clone()
        if len(mask) > 1:
            mask[-1] = False
        return super().__call__(logprob, old_logprob, mask, advantages, **kwargs)


class LooksAtTheNext(PPOPolicyLossFn):
    """Gives each row the advantages of the next."""

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        moved = torch.roll(advantages, 1, dims=0)
        return super().__call__(logprob, old_logprob, action_mask, moved, **kwargs)


class MasksInPlaceLate(PPOPolicyLossFn):
    """Keeps the mask it was given, and clears its first row when it is called again."""

    held = None

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        if self.held is not None:
            self.held[0] = False
        self.held = action_mask
        return super().__call__(logprob, old_logprob, action_mask, advantages, **kwargs)


class RestsEveryThird(PPOPolicyLossFn):
    """Returns a loss without a gradient that matters at every third call."""

    calls = 0

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        self.calls += 1
        loss, metrics = super().__call__(logprob, old_logprob, action_mask, advantages, **kwargs)
        return (loss * 0.0 if self.calls % 3 == 0 else loss), metrics
