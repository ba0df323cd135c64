"""Groups on a virtual clock: the explorer of style ``fully_async``, whose threads are the clock."""

from __future__ import annotations

import heapq
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trinity.common.experience import EID, Experience
from trinity.explorer.continuous import ContinuousExplorer
from trinity.explorer.requests import RolloutResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity_debug.simulated_run import SimulatedParts

__all__ = ["SimulatedGroups", "Tasks", "VirtualGroups", "groups_of"]


def groups_of(parts: SimulatedParts) -> SimulatedGroups:
    """Return the groups of a simulated run."""
    scheduler = SimpleNamespace(begin=_ignore, close=_ignore, busy_s=0.0, num_hung=0)
    made = SimulatedGroups(
        parts.config,
        tasks=Tasks(parts.setup.steps, size=parts.setup.groups),  # type: ignore[arg-type]
        scheduler=scheduler,  # type: ignore[arg-type]
        pipeline=_Pipeline(parts),  # type: ignore[arg-type]
        shelf=parts.storage,
        rollouts=parts.rollouts,
    )
    made.parts = parts
    return made


class VirtualGroups(ContinuousExplorer):
    """The explorer of a run that starts no thread: somebody's clock ends its groups."""

    def end_group(self, number: int, *, size: int) -> None:
        """End a group with one row; ``size`` groups are a batch."""
        batch, place = divmod(number, size)
        row = Experience(
            tokens=[1, 2],  # type: ignore[arg-type]  # becomes a tensor
            prompt_length=1,
            reward=1.0,
            eid=EID(batch=batch + 1, task=place),
            info={"group": number},
        )
        request: Any = SimpleNamespace(key=SimpleNamespace(task=place), num_runs=1)
        self._end(number, [RolloutResult(request=request, experiences=(row,))])

    def _start_pump(self) -> None:
        """Start no thread: the clock ends groups."""

    def _requests(self, task: Any, *, batch: str, number: int) -> list[Any]:
        return []


class SimulatedGroups(VirtualGroups):
    """The explorer of a simulated run; its groups end when the virtual clock says so.

    Attributes:
        parts: of the simulated run.
    """

    parts: SimulatedParts

    def next_end(self) -> float | None:
        """Return when the next group ends; None: none runs."""
        return self._ends[0][0] if self._ends else None

    def tell_ends(self) -> None:
        """End the groups whose time has come."""
        while self._ends and self._ends[0][0] <= self.parts.clock.rollout_now + 1e-9:
            self.end_group(heapq.heappop(self._ends)[1], size=self.parts.setup.groups)

    @property
    def _ends(self) -> list[tuple[float, int]]:
        ends: list[tuple[float, int]] = self.__dict__.setdefault("ends", [])
        return ends

    def _begin(self, number: int, task: Any) -> None:
        parts = self.parts
        parts.versions[number] = self._buffer.slots[number].version
        end = max(parts.ends_of(parts.setup.requests))
        heapq.heappush(self._ends, (end, number))
        super()._begin(number, task)


class _Pipeline:
    """Writes what a group left: one row, which stands for all of its rows."""

    def __init__(self, parts: SimulatedParts) -> None:
        self._storage = parts.storage

    def process(self, rows: Sequence[Any]) -> dict[str, float]:
        self._storage.write_group(rows)
        return {"experience_pipeline/num_written": float(len(rows))}

    def feedback(self) -> dict[str, Any]:
        return {}


class Tasks:
    """As many tasks as the steps of a run need."""

    def __init__(self, num_steps: int, *, size: int) -> None:
        self.num_steps, self._most, self._position = num_steps, num_steps * size, 0

    def read(self, count: int) -> list[Any]:
        """Return the next tasks."""
        if self._position >= self._most:
            raise StopIteration
        first, self._position = self._position, self._position + count
        return [SimpleNamespace(index={"index": n}) for n in range(first, self._position)]

    def again(self, index: Any) -> Any:
        """Return a task that was read before."""
        return SimpleNamespace(index=index)

    def feedback(self, outcomes: object) -> None:
        """Learn nothing from them."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._position = state["position"]


def _ignore(*_: object, **__: object) -> None:
    """Do nothing."""
