"""The contract of an advantage function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from trinity.algorithm.args import WithDefaults
from trinity.common.batch import ExperienceBatch
from trinity.errors import DataError, PluginError
from trinity.extend import Registry
from trinity.extend.manager import owner_label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trinity.common.experience import Experience

__all__ = [
    "ADVANTAGE_FN",
    "AdvantageFn",
    "ComputedOn",
    "apply_advantage",
    "check_advantages",
    "check_rewards",
    "check_rows",
]

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


SHOWN_ROWS = 3
IDS = ("rid", "step")


def check_rewards(batch: ExperienceBatch) -> None:
    """Refuse a reward that is NaN or infinite before a function is blamed for what comes of it.

    Raises:
        DataError: the message names the rows.
    """
    rewards_BR: Tensor = batch["token_level_rewards"]
    is_odd_B = ~rewards_BR.isfinite().all(dim=1)
    if not bool(is_odd_B.any()):
        return
    odd = [batch.experiences[row] for row in is_odd_B.nonzero()[:, 0].tolist()]
    raise DataError(
        f"{len(odd)} experiences have a reward that is NaN or infinite ({_listed(odd)}). It comes "
        "from an experience operator, a KL penalty or a row of a file: correct that, or put the "
        "experience operator `invalid_reward_filter` before it."
    )


def check_rows(
    rows: Sequence[Experience],
    *,
    given: Sequence[Experience],
    function: object,
    may_change: bool,
) -> None:
    """Refuse rows that are missing, twice there, or of nobody.

    Args:
        rows: what the function returned.
        given: what it was given.
        function: the advantage function, for the message.
        may_change: rows may be left out, or come as copies.

    Raises:
        PluginError: the message names the function and the rows.
    """
    if len(rows) == len(given) and all(map(_is_same, rows, given)):
        return
    own = {id(row) for row in given}
    seen: set[int] = set()
    for row in rows:
        if id(row) in seen:
            raise _wrong(function, f"returned the row {row.eid} twice", "Return each row once.")
        seen.add(id(row))
    if may_change:
        return
    strange = [row for row in rows if id(row) not in own]
    if strange:
        raise _wrong(
            function,
            f"returned {len(strange)} rows that it was not given ({_listed(strange)})",
            "Return the rows that it was given, or set changes_rows = True in the class.",
        )
    lost = [row for row in given if id(row) not in seen]
    if lost:
        raise _wrong(
            function,
            f"left out {len(lost)} of the {len(given)} rows that it was given ({_listed(lost)}), "
            "which nobody would train",
            "Return each row, with advantage 0 where it teaches nothing; or set changes_rows = "
            "True in the class if rows are left out on purpose.",
        )


def check_advantages(batch: ExperienceBatch, *, function: object) -> None:
    """Refuse advantages that are missing, of a wrong shape, not finite, or of another row.

    Raises:
        PluginError: the message names the function and what is wrong.
    """
    if not len(batch):
        return
    remedy = "Write batch['advantages'] as float numbers of the shape of batch['action_mask']."
    if "advantages" not in batch:
        raise _wrong(function, "returned a batch without the field 'advantages'", remedy)
    wanted = (len(batch), *batch["action_mask"].shape[1:])
    for name in ("action_mask", "advantages", "returns"):
        if name in batch and tuple(batch[name].shape) != wanted:
            shape = list(batch[name].shape)
            raise _wrong(function, f"made {name} of the shape {shape}, not {list(wanted)}", remedy)
    _check_numbers(batch, function=function, remedy=remedy)
    _check_places(batch, function=function)


def _check_numbers(batch: ExperienceBatch, *, function: object, remedy: str) -> None:
    advantages_BR: Tensor = batch["advantages"]
    if not advantages_BR.is_floating_point():
        raise _wrong(function, f"made advantages of the type {advantages_BR.dtype}", remedy)
    is_odd_BR = ~advantages_BR.isfinite() & batch["action_mask"].bool()
    if bool(is_odd_BR.any()):
        odd = [batch.experiences[row] for row in is_odd_BR.any(dim=1).nonzero()[:, 0].tolist()]
        raise _wrong(
            function,
            f"made advantages that are NaN or infinite, in {len(odd)} rows ({_listed(odd)})",
            "Guard the division: a group of one, or of equal rewards, has no spread.",
        )


def _check_places(batch: ExperienceBatch, *, function: object) -> None:
    """Refuse fields that lie in another order than the experiences."""
    if any(name not in batch.non_tensor_batch for name in IDS):
        return
    ids = zip(batch.non_tensor_batch["rid"], batch.non_tensor_batch["step"], strict=False)
    for (run, step), row in zip(ids, batch.experiences, strict=False):
        if (run, step) != (row.eid.rid, row.eid.step):
            raise _wrong(
                function,
                f"returned the fields of run {run} in the place of experience {row.eid}",
                "Reorder by batch.select(rows), which moves fields and experiences together.",
            )


def _is_same(first: Experience, second: Experience) -> bool:
    return first is second


def _wrong(function: object, what: str, remedy: str) -> PluginError:
    return PluginError(f"advantage function {owner_label(function)} {what}. {remedy}")


def _listed(rows: Sequence[Experience]) -> str:
    shown = ", ".join(str(row.eid) for row in rows[:SHOWN_ROWS])
    return f"{shown}, ..." if len(rows) > SHOWN_ROWS else shown
