"""``trinity.common.rewards.math_reward``: the core's rewards for mathematics."""

from trinity.common.rewards.boxed import MathBoxedRewardFn
from trinity.common.rewards.math import MathRewardFn

__all__ = ["MathBoxedRewardFn", "MathRewardFn"]
