"""Reward functions: the contract, the registry and the built-in ones."""

from trinity.common.rewards.accuracy import AccuracyReward
from trinity.common.rewards.base import REWARD_FUNCTIONS, RewardFn
from trinity.common.rewards.boxed import MathBoxedRewardFn
from trinity.common.rewards.countdown import CountDownRewardFn
from trinity.common.rewards.format import FormatReward
from trinity.common.rewards.math import MathRewardFn

__all__ = [
    "REWARD_FUNCTIONS",
    "AccuracyReward",
    "CountDownRewardFn",
    "FormatReward",
    "MathBoxedRewardFn",
    "MathRewardFn",
    "RewardFn",
]
