"""Say which rows made a training step impossible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience


def not_finite(what: str, value: float, rows: ExperienceBatch, *, step: int) -> TrinityError:
    """Return the error for a loss or a gradient that is no finite number."""
    eids = [str(exp.eid) for exp in _suspects(rows)]
    shown = ", ".join(eids[:8]) + (f" and {len(eids) - 8} more" if len(eids) > 8 else "")
    return TrinityError(
        f"train step {step} stopped: the {what} is {value}. The weights are as before. "
        f"Experiences: {shown}. Look for rewards or log-probabilities that are no numbers, "
        "or lower algorithm.optimizer.lr."
    )


def _suspects(rows: ExperienceBatch) -> list[Experience]:
    """Return the rows that hold a number which is none, or else all rows."""
    floats = [value for value in rows.batch.values() if value.is_floating_point()]
    suspects = [
        exp
        for row, exp in enumerate(rows.experiences)
        if not all(value[row].isfinite().all() for value in floats)
    ]
    return suspects or rows.experiences
