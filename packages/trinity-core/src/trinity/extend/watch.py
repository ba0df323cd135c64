"""Name a call of a plugin's code that does not return, and break it off.

    every second: which calls from the core into code of others are under way, and since when
    report_after_s    one line: which call, whose, since when, where it is now
    end_after_s       HungPartError in the main thread; the program ends where that does not help

Only code that runs in Python, or waits where Python hears signals, can be broken off.
"""

from __future__ import annotations

import math
import operator
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any

from trinity.starting import leave_hung

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

LOOK_S = 1.0
GRACE_S = 30.0  # from the error in the main thread until the program is ended
_CORE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_LIBRARIES = (os.path.dirname(os.__file__) + os.sep, "/site-packages/", "/dist-packages/")
_DEBUGGERS = {"bdb", "pdb"}
_THREADS = ("trinity-rollouts", "trinity-groups")  # of a run, beside the one that began the watch


class HungPartError(BaseException):
    """A call of a plugin's code did not return in time; no ``except Exception`` may hide it."""


class Watch:
    """Looks at the calls that are made inside.

    Args:
        say: prints a line.
        whose: names the plugin that a file belongs to; "": none that is known.
        report_after_s: when a call is told.
        end_after_s: when a call is broken off: by the name of its function, "": of all others;
            None: it is not looked at. A number: of any.
        remedy: what the user can do, for the message.
        what: is waited for; "": the function, and its plugin.
    """

    def __init__(
        self,
        say: Callable[[str], object],
        *,
        whose: Callable[[str], str],
        report_after_s: float,
        end_after_s: Mapping[str, float | None] | float,
        remedy: str,
        what: str = "",
    ) -> None:
        self._say, self._whose, self._remedy, self._what = say, whose, remedy, what
        self._report_after_s, self._end_after_s = report_after_s, end_after_s
        self._caller = threading.current_thread()
        self._can_raise = self._caller is threading.main_thread()
        self._calls: dict[FrameType, float] = {}  # since when, in seconds that were looked at
        self._told: set[str] = set()
        self._outside: list[int] = []  # the frames of the caller, outermost first
        self._before: Any = None  # Any: what signal.signal returns
        self._error: HungPartError | None = None  # on its way to the main thread
        self._why, self._ended_s = "", 0.0  # what it says, and the seconds since
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="trinity-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._outside = [id(one) for one, _ in traceback.walk_stack(sys._getframe(1))][::-1]
        if self._can_raise:
            self._before = signal.signal(signal.SIGURG, self._raise)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(LOOK_S)
        if self._can_raise:
            signal.signal(signal.SIGURG, self._before or signal.SIG_DFL)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _look_on(self) -> None:
        while not self._is_over.wait(LOOK_S):  # counted: a stopped process waits for nobody
            now = {
                call: self._calls.get(call, 0.0) + LOOK_S
                for thread in threading.enumerate()
                if thread is self._caller or thread.name in _THREADS
                for call in self._under_way(thread)
            }
            self._calls = now
            for call, waited_s in now.items():
                self._judge(call, waited_s)
            if self._ended_s:
                self._ended_s += LOOK_S
            if self._ended_s > GRACE_S:
                leave_hung(f"Error: {self._why} The process is ended: that did not stop it.")

    def _under_way(self, thread: threading.Thread) -> Iterator[FrameType]:
        """Yield the calls from the core into code of others, the outermost first."""
        stack = stack_of_thread(thread)
        if any(frame.f_globals.get("__name__") in _DEBUGGERS for frame in stack):
            return
        if thread is self._caller:
            known = [id(frame) == out for frame, out in zip(stack, self._outside, strict=False)]
            stack = stack[(*known, False).index(False) - 1 :]  # from who began the watch
        is_from_core = False
        for frame in stack:
            file = frame.f_code.co_filename
            if file.startswith(_CORE):
                is_from_core = True
            elif self._whose(file) or not _is_library(file):
                if is_from_core and self._limit(frame) is not None:
                    yield frame
                is_from_core = False

    def _limit(self, call: FrameType) -> float | None:
        given = self._end_after_s
        if not isinstance(given, Mapping):
            return given
        return given.get(call.f_code.co_name, given.get(""))

    def _judge(self, call: FrameType, waited_s: float) -> None:
        name = call.f_code.co_qualname
        whose = self._whose(call.f_code.co_filename)
        what = self._what or f"{name}{whose and f' of plugin {whose}'}"
        if waited_s >= self._report_after_s and name not in self._told:
            self._told.add(name)
            since = time.strftime("%H:%M:%S", time.localtime(time.time() - waited_s))
            self._say(f"waiting for {what} since {since}, {waited_s:.0f} s: {_stack_of(call)}")
        limit_s = self._limit(call) or math.inf
        if waited_s >= limit_s and not self._ended_s and self._can_raise:
            self._ended_s = LOOK_S
            self._why = (
                f"{what} did not return in {waited_s:.0f} s: {_stack_of(call)}. {self._remedy}"
            )
            self._error = HungPartError(self._why)
            signal.pthread_kill(self._caller.ident or 0, signal.SIGURG)


def _is_import(frame: FrameType) -> bool:
    return "importlib" in frame.f_code.co_filename


def _is_library(file: str) -> bool:
    return file.startswith((_LIBRARIES[0], "<")) or any(part in file for part in _LIBRARIES[1:])


def stack_of_thread(thread: threading.Thread) -> list[FrameType]:
    """Return the frames of a thread, the outermost first; none: it has ended.

    It is one call into C, so that the thread does not move on meanwhile: CPython 3.11 may crash
    where ``f_back`` of a frame is read whose thread has left it.
    """
    now = map(operator.call, [sys._current_frames])
    innermost = map(operator.itemgetter(thread.ident), now)
    frames: list[FrameType] = []
    with suppress(KeyError, AttributeError):  # of None, behind the outermost
        frames.extend(accumulate(chain(innermost, repeat("f_back")), getattr))
    return frames[-2::-1]


def _stack_of(call: FrameType) -> str:
    """Return where a call is now: its own line, and those below."""
    for stack in map(stack_of_thread, threading.enumerate()):
        if call in stack:
            inner = [frame for frame in stack[stack.index(call) :] if not _is_import(frame)]
            places = [f"{f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in inner]
            return " > ".join(places[:3] + ["..."] * (len(places) > 6) + places[3:][-3:])
    return "it has just returned"
