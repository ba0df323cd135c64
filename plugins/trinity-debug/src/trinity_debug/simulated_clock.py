"""The clock of a simulated run: time passes to the next end of rollouts, or as far as a wait."""

from __future__ import annotations

from typing import Any

__all__ = ["Clock"]


class Clock:
    """The time of the run, and that of the rollouts, which is slower where cores are shared.

    Args:
        shared: how fast each side goes while the other does, too.
    """

    def __init__(self, shared: float) -> None:
        self.now, self.rollout_now, self.trained_s = 0.0, 0.0, 0.0
        self._shared = shared
        self.rollouts: Any = None  # who is told how time passes

    def train(self, seconds: float) -> None:
        """Let so much of the trainer's work be done."""
        began, left = self.now, seconds
        while left > 0.0:
            end = self.rollouts.next_end()
            rate = 1.0 if end is None else self._shared
            if end is None or self.rollout_now + left <= end:
                self._go_to(self.rollout_now + left, rate=rate)
                break
            left -= end - self.rollout_now
            self._go_to(end, rate=rate)
        self.trained_s += self.now - began

    def wait(self, seconds: float) -> None:
        """Let time pass in which nothing is trained."""
        until = self.now + seconds
        while (end := self.rollouts.next_end()) is not None:
            if end - self.rollout_now > until - self.now:
                break
            self._go_to(end)
        self._go_to(self.rollout_now + max(0.0, until - self.now))

    def wait_for_end(self) -> None:
        """Let time pass until the next rollouts end."""
        end = self.rollouts.next_end()
        assert end is not None, "the run waits, and nothing runs"
        self._go_to(end)

    def _go_to(self, rollout_time: float, *, rate: float = 1.0) -> None:
        """Go on to this very time of the rollouts: a sum of differences may never reach it."""
        self.now += (rollout_time - self.rollout_now) / rate
        self.rollout_now = rollout_time
        self.rollouts.tell_ends()
