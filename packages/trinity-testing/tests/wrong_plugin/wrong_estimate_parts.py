"""Divergences, entropy losses, operators, selectors and priorities with one mistake each."""

import torch
from trinity.algorithm import EntropyLossFn, KLFn
from trinity.buffer.operators import ExperienceOperator
from trinity.buffer.selectors import Selector
from trinity.common.ports import PriorityFn


class SumsRows(KLFn):
    """Returns one estimate for each row."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        return 0.5 * (ref_logprob - logprob).square().sum(-1, keepdim=True)

    def calculate_kl_loss(self, logprob, ref_logprob, response_mask, **kwargs):
        difference_BR = torch.where(response_mask, ref_logprob - logprob, 0.0)
        return self.kl_coef * 0.5 * difference_BR.square().sum(), {}


class AddsABonus(KLFn):
    """Adds 1 to each estimate."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        return 1.0 + 0.5 * (ref_logprob - logprob).square()


class ReadsMaskedKL(KLFn):
    """Averages over all columns."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        return 0.5 * (ref_logprob - logprob).square()

    def calculate_kl_loss(self, logprob, ref_logprob, response_mask, **kwargs):
        return self.kl_coef * self.calculate_kl(logprob, ref_logprob).mean(), {}


class IsARow(EntropyLossFn):
    """Returns the entropy of each row."""

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs):
        return self.entropy_coef * torch.where(action_mask, entropy, 0.0).mean(-1), {}


class ReadsMaskedEntropy(EntropyLossFn):
    """Reports the mean over all columns."""

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs):
        value = torch.where(action_mask, entropy, 0.0).sum() / action_mask.sum()
        return self.entropy_coef * value, {"entropy_loss": entropy.mean().item()}


class PunishesDoubt(EntropyLossFn):
    """Is negative already, and is subtracted."""

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs):
        return -0.01 * torch.where(action_mask, entropy, 0.0).sum() / action_mask.sum(), {}


class CountsInWords(ExperienceOperator):
    """Says in words how many it dropped."""

    def process(self, exps):
        return exps, {"dropped": "none"}


class RepeatsTheBest(ExperienceOperator):
    """Lets the best experience go on twice."""

    def process(self, exps):
        best = sorted(exps, key=lambda experience: experience.reward)[-1:]
        return [*exps, *best], {}


class GoesBeyond(Selector):
    """Counts rows from 1."""

    def order(self, epoch):
        return range(1, self.num_rows + 1)


class ForgetsItsPlace(Selector):
    """Keeps no state."""

    def order(self, epoch):
        return range(self.num_rows)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        self.position = 0


class NeedsAVersion(PriorityFn):
    """Is NaN where nobody noted a version."""

    def __call__(self, experiences):
        version = experiences[0].info.get("model_version")
        return (float("nan") if version is None else float(version)), True


class CountsJudgements(PriorityFn):
    """Gives less from judgement to judgement, and keeps no state."""

    def __init__(self):
        self.count = 0

    def __call__(self, experiences):
        self.count += 1
        return -float(self.count), True


class HasTheWrongSign(KLFn):
    """Is negative, so that distance is rewarded."""

    def calculate_kl(self, logprob, ref_logprob, old_logprob=None):
        return -0.5 * (ref_logprob - logprob).square()


class IsCutOff(EntropyLossFn):
    """Detaches the entropy that is to be trained."""

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs):
        value = torch.where(action_mask, entropy.detach(), 0.0).sum() / action_mask.sum()
        return 0.01 * value, {}


class AddsUp(EntropyLossFn):
    """Sums where a mean is asked for."""

    def __call__(self, entropy, action_mask, loss_agg_mode="token-mean", **kwargs):
        return 0.01 * torch.where(action_mask, entropy, 0.0).sum(), {}


class UnmasksAllRows(ExperienceOperator):
    """Trains every token, whoever wrote it."""

    def process(self, exps):
        for experience in exps:
            experience.action_mask.fill_(True)
        return exps, {}
