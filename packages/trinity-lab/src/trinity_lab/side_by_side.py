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

from trinity.runtime.record.lock import is_held

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity_lab.sweep_files import SweepFolder, SweepRun

_LOOK_S = 0.1
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


@dataclass(kw_only=True)
class SideBySide:
    """Runs the runs of a sweep that are not finished.

    Args:
        folder: of the sweep.
        program: ``trinity run`` with the arguments that all runs share.
        slots: for each run that may go on at a time, the variables of its environment.
        say: prints a line.
    """

    folder: SweepFolder
    program: Sequence[str]
    slots: Sequence[Mapping[str, str]]
    say: Callable[[str], None]
    failed: list[SweepRun] = field(default_factory=list)
    was_interrupted: bool = False
    _active: list[Started] = field(default_factory=list)

    def run(self, waiting: Sequence[SweepRun]) -> None:
        """Run these, and return when all ended; a failed one keeps no other from running."""
        self._total, queue, free = len(waiting), list(waiting), list(self.slots)
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while queue or self._active:
                self._start(queue, free)
                time.sleep(_LOOK_S)
                self._collect(free)
        except KeyboardInterrupt:
            self._stop()
        finally:
            signal.signal(signal.SIGTERM, before)

    def _start(self, queue: list[SweepRun], free: list[Mapping[str, str]]) -> None:
        """Start what there is a slot for; what an earlier sweep's process still has waits."""
        for run in [one for one in queue if not is_held(one.directory)][: len(free)]:
            queue.remove(run)
            slot = free.pop(0)
            process = self._process(run, slot)
            number = self._total - len(queue)
            self.say(f"start {number}/{self._total}  {run.name}  (process {process.pid})")
            now = time.monotonic()
            self._active.append(Started(run=run, process=process, slot=slot, since=now))

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
            self.say(f"done   {one.run.name}  {seconds:.0f} s")
            return
        self.failed.append(one.run)
        self.say(
            f"FAILED {one.run.name}  exit code {code}: {self._last_words(one.run)}\n"
            f"       log {self.folder.log(one.run)}"
        )

    def _last_words(self, run: SweepRun) -> str:
        with suppress(OSError):
            text = self.folder.log(run).read_text(encoding="utf-8", errors="replace")
            lines = [line.rstrip() for line in text.splitlines() if line.strip()]
            errors = [n for n, line in enumerate(lines) if _is_error(line)]
            if not errors:
                return lines[-1].strip() if lines else ""
            below = takewhile(_is_indented, lines[errors[-1] + 1 :])  # each problem of a file
            return "\n".join([lines[errors[-1]].strip(), *below][:_MOST_LINES])
        return ""

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


def _is_error(line: str) -> bool:
    return line.strip().startswith(("Error", "Internal error"))


def _is_indented(line: str) -> bool:
    return line.startswith(" ")


def _end_with_parent() -> None:
    """Let the system stop this process if the sweep is killed; runs in the child."""
    if _LIBC is not None:
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
