"""Requests and results as they travel between processes.

A group's task travels once, its workflow by the name it was given (a class in hand: as pickle sees
it, by its module, or by value where it is of ``__main__``). The experiences of all results travel
as one packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.common.wire import Packet, encode
from trinity.explorer.requests import RolloutResult, restored_request, workflow_info

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.outcome import RunFailure
    from trinity.common.workflows import Task
    from trinity.explorer.requests import Find, RolloutRequest


@dataclass(frozen=True, slots=True)
class _Group:
    task: Task
    batch: str
    number: int
    calls: tuple[tuple[int, int], ...]  # the first run, and how many


@dataclass(frozen=True, slots=True)
class PackedRequests:
    """Requests on their way to a runner."""

    groups: tuple[_Group, ...]

    @classmethod
    def of(cls, requests: Sequence[RolloutRequest]) -> PackedRequests:
        """Return the requests packed; those of a task stand next to each other."""
        by_task: dict[tuple[str, int], list[RolloutRequest]] = {}
        for request in requests:
            by_task.setdefault((request.key.batch, request.key.task), []).append(request)
        return cls(
            tuple(
                _Group(
                    group[0].task,
                    batch,
                    number,
                    tuple((request.key.run, request.num_runs) for request in group),
                )
                for (batch, number), group in by_task.items()
            )
        )

    def unpacked(self, find: Find = workflow_info) -> list[RolloutRequest]:
        """Return the requests, their workflows looked up in this process by ``find``.

        Raises:
            UnknownComponentError: no workflow has that name here.
        """
        return [
            restored_request(
                group.task,
                batch=group.batch,
                number=group.number,
                run=run,
                num_runs=num_runs,
                find=find,
            )
            for group in self.groups
            for run, num_runs in group.calls
        ]


@dataclass(frozen=True, slots=True)
class _End:
    num_experiences: int
    failure: RunFailure | None
    retried: tuple[RunFailure, ...]
    duration_s: float


@dataclass(frozen=True, slots=True)
class PackedResults:
    """Results on their way back; ``busy_s`` and ``num_hung`` are the runner's."""

    ends: tuple[_End, ...]
    packet: Packet
    busy_s: float = 0.0  # what the engine spent on generating them
    num_hung: int = 0

    @classmethod
    def of(
        cls, results: Sequence[RolloutResult], *, busy_s: float = 0.0, num_hung: int = 0
    ) -> PackedResults:
        ends = [_End(len(r.experiences), r.failure, r.retried, r.duration_s) for r in results]
        packet = encode([experience for r in results for experience in r.experiences])
        return cls(tuple(ends), packet, busy_s, num_hung)

    def unpacked(self, requests: Sequence[RolloutRequest]) -> list[RolloutResult]:
        """Return the results of these requests, which are those that were sent.

        Most of their experiences are passed on: their tensors are made when asked for.
        """
        experiences = iter(self.packet.held())
        return [
            RolloutResult(
                request=request,
                experiences=tuple(next(experiences) for _ in range(end.num_experiences)),
                failure=end.failure,
                retried=end.retried,
                duration_s=end.duration_s,
            )
            for request, end in zip(requests, self.ends, strict=True)
        ]
