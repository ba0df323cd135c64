"""Change rewards by what a workflow noted."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from trinity.algorithm.args import check_choice
from trinity.common.operators import ExperienceOperator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

OpType = Literal["ADD", "SUB", "MUL", "DIV"]


class RewardShapingMapper(ExperienceOperator):
    """Replaces a reward R by ``R (+, -, x, /) weight * info[stats_key]``, rule after rule.

    A rule leaves alone a row without a reward or without the key, and a division by 0.

    Args:
        reward_shaping_configs: the rules: ``stats_key``, ``op_type`` (ADD, SUB, MUL, DIV) and
            ``weight`` (default 1); None: no rule.

    Raises:
        ValueError: a rule lacks its key or names another operation.
    """

    def __init__(self, reward_shaping_configs: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.rules = [_checked(rule) for rule in reward_shaping_configs or ()]

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return the experiences with their new rewards."""
        before = [exp.reward for exp in exps]
        for exp in exps:
            for key, operation, weight in self.rules:
                _apply(exp, key, operation, weight)
        changes = [
            0.0 if old is None or exp.reward is None else exp.reward - old
            for old, exp in zip(before, exps, strict=True)
        ]
        if not changes:
            return exps, {}
        return exps, {
            "reward_diff/mean": fmean(changes),
            "reward_diff/max": max(changes),
            "reward_diff/min": min(changes),
        }


def _checked(rule: Mapping[str, Any]) -> tuple[str, str, float]:
    if "stats_key" not in rule:
        raise ValueError(f"a rule of reward_shaping_configs needs stats_key; it is {dict(rule)}")
    operation = str(rule.get("op_type", "ADD")).upper()
    check_choice("op_type", operation, OpType)
    return str(rule["stats_key"]), operation, float(rule.get("weight", 1.0))


def _apply(experience: Experience, key: str, operation: str, weight: float) -> None:
    number = experience.info.get(key)
    if experience.reward is None or number is None:
        return
    amount = weight * float(number)
    if operation == "DIV":
        experience.reward = experience.reward / amount if amount else experience.reward
    elif operation == "MUL":
        experience.reward *= amount
    else:
        experience.reward += amount if operation == "ADD" else -amount
