"""The buffer between exploring and training that hands out experiences by priority.

explorer --write()--> [ by priority ] --read()--> trainer
                        ^                |
                        +-- after reuse_cooldown_time --+
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.ports import Storage

from trinity_algorithms.replay.priority import LinearDecay
from trinity_algorithms.replay.priority_queue import PriorityQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.experience import Experience
    from trinity.common.ports import PriorityFn


class ReplayStorage(Storage):
    """A queue with ``replay_buffer.enable``; any number of threads may write and read.

    What was written together is judged together. ``capacity`` counts such batches, and what is left
    of one that was read in part; a full buffer gives up the lowest priority, no writer waits.

    Args:
        config: the section of the buffer.
        priority_fn: which batches come first; None: :class:`LinearDecay`.
    """

    def __init__(
        self, config: ExperienceBufferConfig, *, priority_fn: PriorityFn | None = None
    ) -> None:
        self.name = config.name or "experience_buffer"
        self.gives_again = config.replay_buffer.reuse_cooldown_time is not None
        self._queue = PriorityQueue(
            config.capacity,
            priority_fn or LinearDecay(),
            reuse_cooldown_s=config.replay_buffer.reuse_cooldown_time,
        )
        self._state: dict[str, Any] = {}  # of a checkpoint whose experiences are to come

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store one batch, or what a checkpoint held after :meth:`load_state_dict`."""
        if self._state:
            self._queue.load_state_dict(self._state, experiences=experiences)
            self._state = {}
        else:
            self._queue.put(experiences)

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return the experiences of the highest priorities; those of older models are dropped."""
        try:
            return self._queue.take(count, timeout_s=timeout_s, min_model_version=min_model_version)
        except TimeoutError as error:
            raise TimeoutError(f"{self.name}: {error} Check that the explorer runs.") from None

    def put_back(self, experiences: Sequence[Experience]) -> None:
        self._queue.put_back(experiences)

    def drop_older(self, min_model_version: int) -> None:
        self._queue.drop_older(min_model_version)

    def available(self) -> int:
        return self._queue.num_experiences()

    def waiting(self) -> list[Experience]:
        return self._queue.contents()

    def counts(self) -> dict[str, int]:
        names = ("written", "uses", "reused", "evicted", "given_up", "too_old", "untrained")
        counts = self._queue.counts()
        return {name: counts.get(name, 0) for name in names} | {"held": len(self.waiting())}

    def close(self) -> None:
        self._queue.close()

    def state_dict(self) -> dict[str, Any]:
        """Return how the experiences of :meth:`waiting` lie, and what was counted."""
        return self._queue.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there: the experiences themselves are written next, as one batch."""
        self._queue.load_state_dict(state | {"held": [], "resting": []}, experiences=())
        if state["held"] or state["resting"]:
            self._state = state
