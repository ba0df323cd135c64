"""Policy losses whose gradient is wrong, one mistake each."""

import torch
from wrong_loss_parts import Right, _mean, _weighted


class IsDetached(Right):
    """Detaches what should learn."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        return super().__call__(logprob.detach(), action_mask, advantages)


class IsConstant(Right):
    """Is a constant with a gradient of 0."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        return torch.where(action_mask, logprob * 0.0, 0.0).sum() + 1.0, {}


class GoesBackwardItself(Right):
    """Calls backward() before the trainer does."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss, metrics = super().__call__(logprob, action_mask, advantages)
        loss.backward(retain_graph=True)
        return loss, metrics


class IsDouble(Right):
    """Sums in float64 and stays there."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        return super().__call__(logprob.double(), action_mask, advantages)


class ForgetsTheSign(Right):
    """Forgets that a loss is minimised."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        return -_mean(_weighted(logprob, advantages, action_mask), action_mask), {}


class PunishesAll(Right):
    """Takes the size of the advantage for the advantage."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        return _mean(_weighted(logprob, advantages.abs(), action_mask), action_mask), {}
