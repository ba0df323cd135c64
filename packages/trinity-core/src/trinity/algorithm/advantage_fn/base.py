"""The contract of an advantage function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.advantage_fn.returned import (
    check_advantages,
    check_rewards,
    check_rows,
)
from trinity.algorithm.args import WithDefaults
from trinity.common.batch import ExperienceBatch
from trinity.errors import PluginError
from trinity.extend import Registry
from trinity.extend.manager import owner_label

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.experience import Experience

__all__ = ["ADVANTAGE_FN", "AdvantageFn", "ComputedOn", "apply_advantage"]

ComputedOn = Literal["group", "batch"]

ADVANTAGE_FN = Registry("advantage_fn", kind="advantage_fn")


class AdvantageFn(WithDefaults, ABC):
    """Turns rewards into advantages.

    ``computed_on = "group"``: called by the experience pipeline with all complete groups of one
    explore batch. ``"batch"``: called by the trainer with its batch. Called with a list of
    experiences, it returns a list, in which they have their advantages.
    """

    computed_on: ClassVar[ComputedOn] = "batch"
    changes_rows: bool = False  # whether it may leave rows out, or add copies of some
    needs_whole_step: bool = False  # whether it compares the groups of an explore step

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in cls.__dict__:
            cls.__call__ = _of_lists_too(cls.__dict__["__call__"])  # type: ignore[method-assign]

    @abstractmethod
    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with ``advantages`` and ``returns``, and metrics.

        Both are [B, R], and 0 where masked.
        Where ``changes_rows`` is True, the batch may come back with fewer rows, or with copies of
        some; a row that is left out is not trained on. Else a missing row stops the run.
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
    the list of experiences and returns one, which may be shorter: ``advantage/dropped_rows``.

    Raises:
        DataError: a reward is NaN or infinite.
        PluginError: rows are lost, twice there or in another's place, or advantages are no numbers.
    """
    check_rewards(exps)
    given = list(exps.experiences)
    if _takes_batches(advantage_fn):
        exps, metrics = _pair(advantage_fn(exps), advantage_fn)
        if not isinstance(exps, ExperienceBatch):
            raise _no_batch(f"a {type(exps).__name__} and metrics", advantage_fn)
        check_rows(
            exps.experiences,
            given=given,
            function=advantage_fn,
            may_change=advantage_fn.changes_rows,
        )
        check_advantages(exps, function=advantage_fn)
        return exps, _named(metrics)
    experiences, metrics = _pair(advantage_fn(exps.experiences), advantage_fn)  # type: ignore[arg-type]  # as in 0.6
    rows: list[Experience] = list(experiences)  # type: ignore[call-overload]
    check_rows(rows, given=given, function=advantage_fn, may_change=True)
    exps = type(exps).from_experiences(rows) if rows else exps.select([])
    check_advantages(exps, function=advantage_fn)
    num_dropped = len(given) - len(rows)
    dropped = {"advantage/dropped_rows": float(num_dropped)} if num_dropped > 0 else {}
    return exps, _named(metrics) | dropped


def _pair(returned: object, advantage_fn: AdvantageFn) -> tuple[ExperienceBatch, dict[str, float]]:
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return returned
    given = "None" if returned is None else f"a {type(returned).__name__}"
    raise _no_batch(given, advantage_fn)


def _no_batch(given: str, advantage_fn: AdvantageFn) -> PluginError:
    return PluginError(
        f"advantage function {owner_label(advantage_fn)} returned {given}. Return two things: "
        "the batch with its advantages, and a dict of metrics."
    )


def _takes_batches(advantage_fn: AdvantageFn) -> bool:
    return advantage_fn.compute_in_trainer() or advantage_fn.computed_on == "group"


def _of_lists_too(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the ``__call__``, which takes a list of experiences where it would take a batch."""

    @wraps(method)
    def call(self: AdvantageFn, exps: Any, **kwargs: Any) -> Any:  # Any: a batch or a list
        if not isinstance(exps, (list, tuple)) or not _takes_batches(self):
            return method(self, exps, **kwargs)
        if not exps:
            return [], {}
        batch, metrics = method(self, ExperienceBatch.from_experiences(exps), **kwargs)
        return batch.write_back(), metrics

    return call


def _named(metrics: dict[str, float]) -> dict[str, float]:
    return {
        name if "/" in name else f"advantage/{name}": float(value)
        for name, value in metrics.items()
    }
