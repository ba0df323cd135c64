"""What may happen to experiences between a workflow and the buffer."""

from trinity.buffer.operators.selection import (
    DAPODynamicSampling,
    InvalidRewardFilter,
    MaskResponseTruncated,
    RewardFilter,
    RewardStdFilter,
)
from trinity.common.operators import EXPERIENCE_OPERATORS, ExperienceOperator, ExperienceOperatorV1

__all__ = [
    "EXPERIENCE_OPERATORS",
    "DAPODynamicSampling",
    "ExperienceOperator",
    "ExperienceOperatorV1",
    "InvalidRewardFilter",
    "MaskResponseTruncated",
    "RewardFilter",
    "RewardStdFilter",
]
