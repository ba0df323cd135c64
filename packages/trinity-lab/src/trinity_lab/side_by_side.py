"""Run the runs of a sweep side by side, each a process ``trinity run``.

A run is started when there is a slot. It ends with the sweep: a stopped or killed sweep asks its
runs to stop, which save and end; the same command goes on with each from its checkpoint.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from trinity.cli.output import duration
from trinity.errors import CheckpointError, ConfigError
from trinity.runtime.record.lock import is_held

from trinity_lab.outcomes import read_outcome, run_directories

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from trinity_lab.sweep_files import SweepFolder, SweepRun

_LOOK_S = 0.1
_TELL_SHARE = 0.1  # of the time that a sweep has taken: so long nothing is said of active runs
_IN_TRAINING = "rollout/reward/mean"
_MOST_LINES = 20  # of an error
_SET_PARENT_DEATH_SIGNAL = 1  # of prctl(2)
# Loaded here: other threads may hold locks when a run is forked, so its child only calls it.
_LIBC: Any = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True, kw_only=True)
class Started:
    """A run that is going on."""

    run: SweepRun
    process: subprocess.Popen[bytes]
    slot: Mapping[str, str]
    since: float  # by time.monotonic
    log_start: int  # of its log: bytes that earlier starts printed


@dataclass(kw_only=True)
class SideBySide:
    """Runs the runs of a sweep that are not finished.

    Args:
        folder: of the sweep.
        program: ``trinity run`` with the arguments that all runs share.
        slots: for each run that may go on at a time, the variables of its environment.
        say: prints a line.
        tell_s: how often active runs are shown, in seconds; of a long sweep, less often.
    """

    folder: SweepFolder
    program: Sequence[str]
    slots: Sequence[Mapping[str, str]]
    say: Callable[[str], None]
    failed: list[SweepRun] = field(default_factory=list)
    was_interrupted: bool = False
    tell_s: float = 60.0
    _active: list[Started] = field(default_factory=list)
    _waiting: list[SweepRun] = field(default_factory=list)
    _seconds: list[float] = field(default_factory=list)  # of the runs that finished

    def run(self, waiting: Sequence[SweepRun]) -> None:
        """Run these, and return when all ended; a failed one keeps no other from running."""
        self._total, queue, free = len(waiting), list(waiting), list(self.slots)
        self._waiting, began = queue, time.monotonic()
        told = began
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while queue or self._active:
                self._start(queue, free)
                time.sleep(_LOOK_S)
                self._collect(free)
                now = time.monotonic()
                if now - told >= max(self.tell_s, _TELL_SHARE * (now - began)):
                    told = now
                    self._tell_active()
        except KeyboardInterrupt:
            self._stop()
        finally:
            signal.signal(signal.SIGTERM, before)

    def _start(self, queue: list[SweepRun], free: list[Mapping[str, str]]) -> None:
        """Start what there is a slot for; what an earlier sweep's process still has waits."""
        for run in [one for one in queue if not is_held(one.directory)][: len(free)]:
            queue.remove(run)
            slot, log = free.pop(0), self.folder.log(run)
            log_start = log.stat().st_size if log.exists() else 0
            process = self._process(run, slot)
            number = self._total - len(queue)
            self.say(f"start {number}/{self._total}  {run.name}  (process {process.pid})")
            now = time.monotonic()
            self._active.append(
                Started(run=run, process=process, slot=slot, since=now, log_start=log_start)
            )

    def _process(self, run: SweepRun, slot: Mapping[str, str]) -> subprocess.Popen[bytes]:
        options = [word for text in run.overrides for word in ("--set", text)]
        with self.folder.log(run).open("ab") as log:
            return subprocess.Popen(
                [*self.program, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(slot),
                start_new_session=True,  # Ctrl-C of the terminal is handed on by `_stop`, once
                preexec_fn=_end_with_parent,  # noqa: PLW1509 -- it makes one system call
            )

    def _collect(self, free: list[Mapping[str, str]]) -> None:
        for one in [one for one in self._active if one.process.poll() is not None]:
            self._active.remove(one)
            free.append(one.slot)
            self._note(one)

    def _note(self, one: Started) -> None:
        code, seconds = one.process.returncode, time.monotonic() - one.since
        self.folder.note(one.run, exit_code=code, seconds=seconds)
        if code == 0:
            self._seconds.append(seconds)
            parts = [f"done   {one.run.name}", duration(seconds), _score(one.run.directory)]
            self.say("  ".join([*filter(None, parts), self._how_far()]))
            return
        self.failed.append(one.run)
        self.say(
            f"FAILED {one.run.name}  exit code {code}: {self._last_words(one)}\n"
            f"       log {self.folder.log(one.run)}"
        )

    def _how_far(self) -> str:
        """Return how many runs ended, and about how long the others take."""
        num_left = len(self._waiting) + len(self._active)
        text = f"{self._total - num_left} of {self._total} ended"
        if not num_left or not self._seconds:
            return f"({text})"
        each, now = sum(self._seconds) / len(self._seconds), time.monotonic()
        rest = [max(0.0, each - (now - one.since)) for one in self._active]
        left = (sum(rest) + each * len(self._waiting)) / len(self.slots)
        return f"({text}, about {duration(max([left, *rest]))} left)"

    def _tell_active(self) -> None:
        """Show the last step that each active run printed: its reward, and how long it takes."""
        for one in self._active:
            steps = [line for line in self._lines(one) if line.startswith("step ")]
            self.say(f"active {one.run.name}  {steps[-1] if steps else 'starting'}")
        self.say(f"       {self._how_far()}")

    def _lines(self, one: Started) -> list[str]:
        """Return what a run printed since it was started, without empty lines."""
        with suppress(OSError), self.folder.log(one.run).open("rb") as log:
            log.seek(one.log_start)
            text = log.read().decode("utf-8", errors="replace")
            return [line.rstrip() for line in text.splitlines() if line.strip()]
        return []

    def _last_words(self, one: Started) -> str:
        lines = self._lines(one)
        errors = [n for n, line in enumerate(lines) if _is_error(line)]
        if not errors:
            return lines[-1].strip() if lines else ""
        below = takewhile(_is_indented, lines[errors[-1] + 1 :])  # each problem of a file
        return "\n".join([lines[errors[-1]].strip(), *below][:_MOST_LINES])

    def _stop(self) -> None:
        """Ask all to stop and wait until they have saved; a second Ctrl-C stops them at once."""
        self.was_interrupted = True
        self.say(f"stopping {len(self._active)} runs; each saves a checkpoint")
        while self._active:
            for one in self._active:
                with suppress(ProcessLookupError):
                    one.process.send_signal(signal.SIGINT)
            try:
                while self._active:
                    time.sleep(_LOOK_S)
                    self._active = [one for one in self._active if one.process.poll() is None]
            except KeyboardInterrupt:
                continue


def _score(directory: Path) -> str:
    """Return the reward of a run's last evaluation, else of its last steps; "": it has none."""
    for metric in ("", _IN_TRAINING):
        with suppress(ConfigError, CheckpointError, OSError):
            outcome = read_outcome(run_directories([directory])[-1], metric=metric)
            return f"{outcome.metric} {outcome.value:.3f}"
    return ""


def _is_error(line: str) -> bool:
    return line.strip().startswith(("Error", "Internal error"))


def _is_indented(line: str) -> bool:
    return line.startswith(" ")


def _end_with_parent() -> None:
    """Let the system stop this process if the sweep is killed; runs in the child."""
    if _LIBC is not None:
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
