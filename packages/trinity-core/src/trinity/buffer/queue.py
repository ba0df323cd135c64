"""The buffer in memory between exploring and training.

explorer --write()--> [ batch batch batch ] --read()--> trainer
                         ^ full: waits         ^ too few: waits, and leaves all in place
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from trinity.common.ports import Storage
from trinity.errors import BufferClosedError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.config import ExperienceBufferConfig
    from trinity.common.experience import Experience


class QueueStorage(Storage):
    """First in, first out. Any number of threads may write and read.

    ``capacity`` counts written batches, as published. A writer never waits for a reader that waits
    for more than the capacity holds.

    Args:
        config: the section of the buffer: name, capacity and how long a writer may wait.
        path: not used; a queue is in memory.
        chat_format: not used; a queue holds experiences, no rows.
        total_epochs: not used; a queue gives each experience once.
    """

    is_in_order = True

    def __init__(
        self,
        config: ExperienceBufferConfig,
        *,
        path: Path | None = None,
        chat_format: object = None,
        total_epochs: int | None = 1,
    ) -> None:
        self.name = config.name or "experience_buffer"
        self._capacity = config.capacity
        self._write_timeout_s = config.max_read_timeout
        self._batches: deque[deque[Experience]] = deque()
        self._changed = threading.Condition()
        self._wanted = 0  # what the reader that waits asked for
        self._is_closed = False

    def write(self, experiences: Sequence[Experience]) -> None:
        """Store one batch; wait while the queue is full.

        Raises:
            BufferClosedError: the queue was closed, before or while this waited.
            TimeoutError: nothing was read for ``max_read_timeout`` seconds; nothing was stored.
        """
        if not experiences:
            return
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: self._is_closed or self._has_capacity(), timeout=self._write_timeout_s
            )
            if self._is_closed:
                raise BufferClosedError(f"{self.name} is closed; it accepts no more experiences")
            if not has_room:
                raise TimeoutError(
                    f"{self.name} was full ({self._capacity} batches) for "
                    f"{self._write_timeout_s:.0f} s (backpressure). Check that the trainer reads. "
                    f"If a train step takes that long, raise its capacity or max_read_timeout."
                )
            self._batches.append(deque(experiences))
            self._changed.notify_all()

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        limit = time.monotonic() + timeout_s
        with self._changed:
            try:
                while not self._has(count, min_model_version) and not self._is_closed:
                    self._wanted = count
                    self._changed.notify_all()
                    left = limit - time.monotonic()
                    if left <= 0:
                        raise TimeoutError(self._too_few(count, timeout_s))
                    self._changed.wait(left)
            finally:
                self._wanted = 0
            experiences = self._take(count)
            self._changed.notify_all()
        if not experiences:
            raise StopIteration
        return experiences

    def put_back(self, experiences: Sequence[Experience]) -> None:
        with self._changed:
            self._batches.appendleft(deque(experiences))
            self._changed.notify_all()

    def drop_older(self, min_model_version: int) -> None:
        with self._changed:
            self._drop_older(min_model_version)

    def available(self) -> int:
        with self._changed:
            return self._count()

    def waiting(self) -> list[Experience]:
        with self._changed:
            return [experience for batch in self._batches for experience in batch]

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_capacity(self) -> bool:
        return len(self._batches) < self._capacity or self._count() < self._wanted

    def _has(self, count: int, min_model_version: int) -> bool:
        if min_model_version > 0:
            self._drop_older(min_model_version)
        return self._count() >= count

    def _drop_older(self, min_model_version: int) -> None:
        kept = [
            deque(e for e in batch if (e.info.get("model_version") or 0) >= min_model_version)
            for batch in self._batches
        ]
        if sum(map(len, kept)) < self._count():
            self._batches = deque(batch for batch in kept if batch)
            self._changed.notify_all()

    def _take(self, count: int) -> list[Experience]:
        taken: list[Experience] = []
        while self._batches and len(taken) < count:
            taken.append(self._batches[0].popleft())
            if not self._batches[0]:
                self._batches.popleft()
        return taken

    def _count(self) -> int:
        return sum(map(len, self._batches))

    def _too_few(self, count: int, timeout_s: float) -> str:
        return (
            f"{self.name} has {self._count()} of the {count} requested experiences after "
            f"{timeout_s:.0f} s. They stay in it. Check that the explorer runs. If its steps are "
            f"slow, raise buffer.trainer_input.experience_buffer.max_read_timeout."
        )
