"""Policy losses, one right, the others with one mistake each."""

import torch
from trinity.algorithm import PolicyLossFn


def _safe(value_BR, mask_BR):
    return torch.where(mask_BR, value_BR, 0.0)


def _mean(value_BR, mask_BR):
    return _safe(value_BR, mask_BR).sum() / (mask_BR.sum() + 1e-8)


def _weighted(logprob, advantages, mask_BR):
    return -_safe(advantages, mask_BR) * _safe(logprob, mask_BR)


class Right(PolicyLossFn):
    """Policy gradient."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss = _mean(_weighted(logprob, advantages, action_mask), action_mask)
        return loss, {"loss": loss.item()}


class CountsPadding(PolicyLossFn):
    """Divides by the number of columns."""

    normalizer = "rows"

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        return _weighted(logprob, advantages, action_mask).mean(), {}


class MasksTooLate(PolicyLossFn):
    """Multiplies by the mask what has overflowed already."""

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        ratio_BR = (logprob - old_logprob).clamp(-20, 20).exp()
        loss_BR = -advantages * ratio_BR * action_mask
        return loss_BR.sum() / (action_mask.sum() + 1e-8), {}


class IsAVector(PolicyLossFn):
    """Returns a value for each row."""

    normalizer = "sum"

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        return _weighted(logprob, advantages, action_mask).sum(-1), {}


class Overflows(PolicyLossFn):
    """Takes exp() of any log-ratio."""

    def __call__(self, logprob, old_logprob, action_mask, advantages, **kwargs):
        ratio_BR = _safe(logprob - old_logprob, action_mask).exp()
        return _mean(-_safe(advantages, action_mask) * ratio_BR, action_mask), {}


class TeachesWithoutAdvantage(PolicyLossFn):
    """Adds the likelihood."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss = _mean(_weighted(logprob, advantages, action_mask), action_mask)
        return loss - 0.1 * _mean(logprob, action_mask), {}


class WrongNormalizer(PolicyLossFn):
    """Is a mean over rows and says it is one over tokens."""

    normalizer = "tokens"

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss_BR = _weighted(logprob, advantages, action_mask)
        rows_B = loss_BR.sum(-1) / (action_mask.sum(-1) + 1e-8)
        return rows_B.mean(), {}


class MetricsAreTensors(PolicyLossFn):
    """Returns a tensor as metric."""

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        loss = _mean(_weighted(logprob, advantages, action_mask), action_mask)
        return loss, {"loss": loss.detach()}


class ForgetsSlowly(PolicyLossFn):
    """Weighs each call less than the one before, so that the second micro-batch counts half."""

    def __init__(self):
        self.num_calls = 0

    def __call__(self, logprob, action_mask, advantages, **kwargs):
        self.num_calls += 1
        loss = _mean(_weighted(logprob, advantages, action_mask), action_mask)
        return loss / self.num_calls, {}
