"""Nothing to learn from: groups whose rewards are equal, and tasks that are all alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity_lab.advisors.following import Following, Series, Symptom

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.ports import Observation

_EQUAL = 1e-7  # a spread of rewards that is none
_WINDOW, _MOST_DEAD = 8, 6  # steps
_FILTERED = 0.75  # of the experiences
_EDGE = 0.02  # of the range of all rewards
_REMEDY = (
    "With equal rewards in a group every advantage is 0. Check that the reward reads the reply, "
    "raise algorithm.repeat_times or the temperature, use tasks that the model solves sometimes, "
    "or a reward with more steps between right and wrong"
)


class DeadGroups(Following):
    """Finds steps in which no group has different rewards, or in which all is filtered out."""

    def __init__(self) -> None:
        self._rewards, self._dead, self._filtered = Series(), Series(), Series()

    def _look(self, seen: Observation) -> Symptom | None:
        metrics, step = seen.metrics, seen.step
        if seen.role != "explorer" or "rollout/reward/mean" not in metrics:
            return None
        self._rewards.add(step, metrics["rollout/reward/mean"])
        spread = metrics.get("group_advantages/reward_std/max")
        if spread is None:  # an algorithm without groups: all rewards of the step are equal
            spread = metrics.get("rollout/reward/max", 0.0) - metrics.get("rollout/reward/min", 0.0)
        self._dead.add(step, float(spread < _EQUAL))
        read = metrics.get("experience_pipeline/num_read") or 0.0
        self._filtered.add(step, metrics.get("advantage/filtered_count", 0.0) / max(read, 1.0))
        if len(self._dead) < _WINDOW or has_risen(self._rewards):
            return None
        return self._found()

    def _found(self) -> Symptom | None:
        num_dead = round(self._dead.last(_WINDOW) * _WINDOW)
        where, reward = self._dead.since(_WINDOW), self._rewards.last(_WINDOW)
        if num_dead >= _MOST_DEAD:
            text = (
                f"in {num_dead} of the last {_WINDOW} rollout steps ({where}) no group had "
                f"different rewards (mean reward {reward:.3g}), so there was nothing to learn from"
            )
            return Symptom(seen=text, remedy=_REMEDY, shows=_has_no_advantage)
        filtered = self._filtered.last(_WINDOW)
        if filtered >= _FILTERED:
            text = f"{filtered:.0%} of the experiences of {where} were filtered out: equal rewards"
            return Symptom(seen=text, remedy=_REMEDY)
        return None


class Difficulty(Following):
    """Finds tasks that are all too hard or too easy, by where the rewards lie."""

    def __init__(self) -> None:
        self._rewards = Series()
        self._lowest, self._highest = float("inf"), float("-inf")

    def _look(self, seen: Observation) -> Symptom | None:
        metrics = seen.metrics
        if seen.role != "explorer" or "rollout/reward/mean" not in metrics:
            return None
        self._rewards.add(seen.step, metrics["rollout/reward/mean"])
        self._lowest = min(self._lowest, metrics.get("rollout/reward/min", self._lowest))
        self._highest = max(self._highest, metrics.get("rollout/reward/max", self._highest))
        width = self._highest - self._lowest
        if len(self._rewards) < _WINDOW or width < _EQUAL or has_risen(self._rewards):
            return None
        place = (self._rewards.last(_WINDOW) - self._lowest) / width
        if _EDGE < place < 1 - _EDGE or not abs(place - round(self._start(width))) <= 0.1:
            return None
        is_hard = place <= _EDGE
        what = "too hard: nearly all replies get" if is_hard else "too easy: nearly all get"
        worst = self._lowest if is_hard else self._highest
        text = (
            f"tasks are {what} {worst:.3g} (mean {self._rewards.last(_WINDOW):.3g}, "
            f"{self._rewards.since(_WINDOW)}; all rewards lie in {self._lowest:.3g} to "
            f"{self._highest:.3g})"
        )
        remedy = (
            "Begin with easier tasks, give parts of the reward for parts of the answer, or train "
            "on demonstrations first"
            if is_hard
            else "Use harder tasks, or leave out those that are solved (task selector "
            "difficulty_based)"
        )
        return Symptom(seen=text, remedy=remedy, shows=lambda row: row["reward"] == worst)

    def _start(self, width: float) -> float:
        return (self._rewards.first(_WINDOW) - self._lowest) / width


def has_risen(rewards: Series, *, count: int = 4) -> bool:
    """Return whether the mean reward is clearly higher than it began: what is left is solved."""
    if len(rewards) < 2 * count:
        return False
    noise = rewards.noise(count)
    return rewards.last(count) - rewards.first(count) > 4 * max(noise, _EQUAL)


def _has_no_advantage(row: Mapping[str, Any]) -> bool:
    return not row["advantage"]
