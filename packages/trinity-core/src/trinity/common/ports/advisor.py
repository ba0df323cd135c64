"""Reads what a run tells of itself, and says why it does not learn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The metrics of a phase: a rollout step, an optimizer step, an evaluation, a weight sync.

    Attributes:
        role: ``explorer``, ``trainer`` or ``synchronizer``, as in ``metrics.jsonl``.
        step: of that role.
        metrics: by name; a number may be NaN.
        samples: reads the rows that the optimizer step trained; empty for other roles, and where
            they are not kept. It takes milliseconds: call it once there is something to show.
            Each row has ``eid`` (``batch/task/run/step``), ``reward``, ``advantage`` (floats, or
            None), ``response`` (token ids, an int32 array), ``prompt_length``, ``is_cut`` and
            ``metrics``.
    """

    role: str
    step: int
    metrics: Mapping[str, float]
    samples: Callable[[], Sequence[Mapping[str, Any]]] = tuple


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """What is wrong with a run, as people read it in its log, status and pages.

    Attributes:
        seen: the numbers, and at which steps; without its full stop.
        remedy: what people do about it; without its full stop.
        samples: ids of rows that show it, ``batch/task/run/step``.
        settings: values by dotted path, with which a run goes on after a rollback.
    """

    seen: str
    remedy: str
    samples: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


class Advisor(ABC):
    """Follows a run. One that has given advice is asked no more: each says a thing once.

    It is made with ``config`` where its constructor names it, once a stage. After a restart it gets
    the metrics of the last steps before, without samples.
    """

    @abstractmethod
    def observe(self, seen: Observation) -> Advice | None:
        """Return what is wrong, or None. Called in the loop's thread: take microseconds."""
