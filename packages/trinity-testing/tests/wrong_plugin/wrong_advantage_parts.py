"""Advantage functions with one mistake each."""

import torch
from trinity.algorithm import AdvantageFn


def _scored(exps, scores_B):
    mask_BR = exps["action_mask"]
    exps["advantages"] = scores_B[:, None] * mask_BR
    exps["returns"] = exps["advantages"].clone()
    return exps, {}


def _relative(rewards_B, groups):
    scores_B = torch.zeros_like(rewards_B)
    for rows in groups:
        scores_B[rows] = rewards_B[rows] - rewards_B[rows].mean()
    return scores_B


class TeachesEqualRewards(AdvantageFn):
    """Takes the reward itself."""

    def __call__(self, exps, **kwargs):
        return _scored(exps, exps["rewards"])


class ReadsMasked(AdvantageFn):
    """Sums the rewards of masked tokens too."""

    def __call__(self, exps, **kwargs):
        rewards_B = exps["token_level_rewards"].sum(-1)
        return _scored(exps, _relative(rewards_B, exps.groups().values()))


class TeachesMasked(AdvantageFn):
    """Forgets the mask."""

    def __call__(self, exps, **kwargs):
        scores_B = _relative(exps["rewards"], exps.groups().values())
        exps["advantages"] = scores_B[:, None].expand(exps["action_mask"].shape)
        return exps, {}


class GroupsByPlace(AdvantageFn):
    """Takes three neighbours for a group."""

    def __call__(self, exps, **kwargs):
        places = torch.arange(len(exps))
        return _scored(exps, _relative(exps["rewards"], places.split(3)))


class DividesBySpread(AdvantageFn):
    """Divides by the sample deviation, which one reward does not have."""

    def __call__(self, exps, **kwargs):
        scores_B = _relative(exps["rewards"], exps.groups().values())
        for rows in exps.groups().values():
            scores_B[rows] = scores_B[rows] / (exps["rewards"][rows].std() + 1e-6)
        return _scored(exps, scores_B)


class CarriesGradient(AdvantageFn):
    """Weighs by a probability without detaching it."""

    def __call__(self, exps, **kwargs):
        mask_BR = exps["action_mask"]
        scores_B = _relative(exps["rewards"], exps.groups().values())
        safe_BR = torch.where(mask_BR, exps["old_logprob"], 0.0)
        exps["advantages"] = scores_B[:, None] * safe_BR.exp() * mask_BR
        return exps, {}


class WrongBase:
    """Derives from nothing."""

    changes_rows = False

    def __call__(self, exps, **kwargs):
        return _scored(exps, exps["rewards"] * 0)

    @classmethod
    def compute_in_trainer(cls):
        return True


class NeedsArgument(AdvantageFn):
    """Has an argument without a default, of which this docstring is silent."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, exps, **kwargs):
        return _scored(exps, self.scale * _relative(exps["rewards"], exps.groups().values()))


def _hide():
    class Hidden(TeachesEqualRewards):
        """Stands where no other process finds it."""

    return Hidden


hidden = _hide()


class UnmasksAll(AdvantageFn):
    """Opens the mask, and scores every token."""

    def __call__(self, exps, **kwargs):
        exps["action_mask"].fill_(True)
        return _scored(exps, _relative(exps["rewards"], exps.groups().values()))
