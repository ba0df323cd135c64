"""Run a program and read, while it runs, the CPU seconds of all its processes and its progress."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Curve", "processes_below", "used_seconds", "watch"]

_POLL_S = 0.1
_PATIENCE_S = 30.0
_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Curve:
    """The reward of each step, and the CPU seconds at which it was there."""

    startup_s: float = 0.0  # until the first rewards
    cpu_s: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def means(self, window: int) -> list[float]:
        """Return the mean of the last ``window`` rewards, from the first that has so many."""
        rewards = self.rewards
        ends = range(window, len(rewards) + 1)
        return [sum(rewards[end - window : end]) / window for end in ends]

    def steps_until(self, goal: float, *, window: int) -> int | None:
        """Return after how many steps the mean of ``window`` rewards was ``goal``; None: never."""
        return next(
            (step for step, mean in enumerate(self.means(window), start=window) if mean >= goal),
            None,
        )

    def seconds_until(self, goal: float, *, window: int) -> float | None:
        """Return the CPU seconds until then, start-up apart."""
        steps = self.steps_until(goal, window=window)
        return None if steps is None else self.cpu_s[steps - 1] - self.startup_s


def watch(
    command: Sequence[str],
    *,
    rewards_of: Callable[[], list[float]],
    goal: float,
    window: int,
    log: Path,
    environment: dict[str, str],
) -> Curve:
    """Return the curve of a program that is stopped once it has reached the goal."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become our children
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=log.parent
        )
        clock, curve, before = _Clock(process.pid), Curve(), 0.0
        try:
            while process.poll() is None and curve.steps_until(goal, window=window) is None:
                time.sleep(_POLL_S)
                now, rewards = clock.seconds(), rewards_of()
                _extend(curve, rewards, before=before, now=now)
                before = now
        finally:
            _stop(process, clock)
    return curve


def _extend(curve: Curve, rewards: list[float], *, before: float, now: float) -> None:
    """Add the steps that ended since the last look, evenly over the seconds between."""
    num_new = len(rewards) - len(curve.rewards)
    for number in range(num_new):
        curve.cpu_s.append(before + (now - before) * (number + 1) / num_new)
    if num_new and not curve.rewards:
        curve.startup_s = curve.cpu_s[0]
    curve.rewards = rewards


def _stop(process: subprocess.Popen, clock: _Clock) -> None:
    """Ask the program to end, then end every process it started."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
    for pid in clock.living():
        os.kill(pid, signal.SIGKILL)
    process.wait()


class _Clock:
    """Adds up the CPU seconds of a process and all that descend from it, ended ones too."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._seconds: dict[tuple[int, int], float] = {}  # (pid, start time) -> CPU

    def seconds(self) -> float:
        for pid in self.living():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            except OSError:  # it has just ended
                continue
            used = (int(fields[11]) + int(fields[12])) / _TICKS
            self._seconds[pid, int(fields[19])] = used
        return sum(self._seconds.values())

    def living(self) -> list[int]:
        """Return the processes there are: those below the root, and the orphans we adopted."""
        known = {pid for pid, _ in self._seconds} | {self._root}
        orphans = [pid for pid in _children(os.getpid()) if pid in known]
        return list(
            dict.fromkeys(pid for top in [self._root, *orphans] for pid in processes_below(top))
        )


def used_seconds(pid: int) -> float:
    """Return the CPU seconds of a living process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def processes_below(pid: int) -> Iterator[int]:
    """Yield a process and all that descend from it."""
    if not Path(f"/proc/{pid}").exists():
        return
    yield pid
    for child in _children(pid):
        yield from processes_below(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in file.read_text().split()]
        except OSError:  # the thread has just ended
            continue
    return found
