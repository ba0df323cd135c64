"""``trinity.buffer.operators.filters.reward_filter``: the core's operators by published names."""

from trinity.extend import get_manager

__all__ = [
    "DAPODynamicSamplingFilter",
    "InvalidRewardFilter",
    "MaskResponseTruncatedOperator",
    "RewardFilter",
    "RewardSTDFilter",
]

_load = get_manager().load
DAPODynamicSamplingFilter = _load("experience_operator", "dapo_dynamic_sampling")
InvalidRewardFilter = _load("experience_operator", "invalid_reward_filter")
MaskResponseTruncatedOperator = _load("experience_operator", "mask_response_truncated")
RewardFilter = _load("experience_operator", "reward_filter")
RewardSTDFilter = _load("experience_operator", "reward_std_filter")
