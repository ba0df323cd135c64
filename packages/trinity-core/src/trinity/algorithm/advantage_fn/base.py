"""The contract of an advantage function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.args import WithDefaults
from trinity.extend import Registry

if TYPE_CHECKING:
    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience

__all__ = ["ADVANTAGE_FN", "AdvantageFn", "ComputedOn", "apply_advantage"]

ComputedOn = Literal["group", "batch"]

ADVANTAGE_FN = Registry("advantage_fn", kind="advantage_fn")


class AdvantageFn(WithDefaults, ABC):
    """Turns rewards into advantages.

    ``computed_on = "group"``: called by the experience pipeline with all complete groups of one
    explore batch. ``"batch"``: called by the trainer with its batch.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    @abstractmethod
    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with ``advantages`` and ``returns``, and metrics.

        Both are [B, R], and 0 where masked.
        The batch may come back with fewer rows; a row that is left out is not trained on.
        """

    @classmethod
    def compute_in_trainer(cls) -> bool:
        """Return whether the trainer calls it, with its batch."""
        return cls.computed_on == "batch"


def apply_advantage(
    advantage_fn: AdvantageFn, exps: ExperienceBatch
) -> tuple[ExperienceBatch, dict[str, float]]:
    """Return what the function makes of the batch, and metrics, ``advantage/`` before bare names.

    A class that overrides ``compute_in_trainer`` to return False, as in Trinity-RFT 0.6, is given
    the list of experiences and returns one.
    """
    if advantage_fn.compute_in_trainer() or advantage_fn.computed_on == "group":
        exps, metrics = advantage_fn(exps)
        return exps, _named(metrics)
    experiences, metrics = advantage_fn(exps.experiences)  # type: ignore[arg-type]  # as in 0.6
    rows: list[Experience] = list(experiences)  # type: ignore[call-overload]
    return (type(exps).from_experiences(rows) if rows else exps.select([])), _named(metrics)


def _named(metrics: dict[str, float]) -> dict[str, float]:
    return {
        name if "/" in name else f"advantage/{name}": float(value)
        for name, value in metrics.items()
    }
