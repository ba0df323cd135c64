"""What an advantage function gave back, checked: each row once, with a number for each token.

A row that vanishes is never trained, and rows that change places are trained on each other's
advantages; nobody would see either in the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import DataError, PluginError
from trinity.extend.manager import owner_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience

__all__ = ["check_advantages", "check_rewards", "check_rows"]

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
