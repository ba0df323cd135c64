"""``trinity.algorithm.advantage_fn.advantage_fn``: bases of advantage functions."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from trinity.algorithm.advantage_fn.base import AdvantageFn
from trinity.common.metrics import aggregate
from trinity.common.operators import ExperienceOperator

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["AdvantageFn", "GroupAdvantage"]


class GroupAdvantage(AdvantageFn, ExperienceOperator):
    """Gives the experiences of a list their advantages, group by group.

    It is called before experiences are stored, with all complete groups of one explore batch.
    """

    @classmethod
    def compute_in_trainer(cls) -> bool:
        """Return False."""
        return False

    @abstractmethod
    def group_experiences(self, exps: list[Experience]) -> dict[str, list[Experience]]:
        """Return the experiences of each group, by a name of the group."""

    @abstractmethod
    def calculate_group_advantage(
        self, group_id: str, exps: list[Experience]
    ) -> tuple[list[Experience], Metrics]:
        """Return the group with advantages and returns, and numbers about it.

        It may be shorter: an experience that is left out of it is not trained on.
        """

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return the experiences group by group, and each number's mean, max and min."""
        kept: list[Experience] = []
        numbers: list[Metrics] = []
        for name, group in self.group_experiences(exps).items() if exps else ():
            experiences, own = self.calculate_group_advantage(name, group)
            kept += experiences
            numbers.append(own)
        return kept, aggregate(numbers, prefix="group_advantages")

    def __call__(  # type: ignore[override]  # a list, as published
        self, exps: list[Experience], **kwargs: Any
    ) -> tuple[list[Experience], Metrics]:
        """Return what ``process`` does."""
        return self.process(exps)
