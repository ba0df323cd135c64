"""The process that judges: two mathematical texts in, whether they mean the same out.

    EnvProcess  --compare(response, truth)-->  Judge  --pipe-->  a fork of it, which does the work
                                                 |                 0.5 s of CPU, 1 GiB more, then
                                                 +-- the next fork   the kernel ends it

``Judge`` imports the mathematics once; its fork has all of it, so another one takes milliseconds.
"""

from __future__ import annotations

import logging
import os
import pickle
import resource
import select
import signal
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CUT", "MAX_CPU_S", "MAX_WAIT_S", "WAITED", "Judge"]

CUT = "cut"  # the judgement took too much
WAITED = "waited"  # it had no time on this machine, which says nothing of it
MAX_CPU_S = 0.5
MAX_MEMORY = 1 << 30  # bytes, beside what the process has when it begins
MAX_WAIT_S = 60.0  # on a machine that is busy with others
MAX_DEPTH = 5_000  # of calls: readers of nested texts call themselves
_PAGE = resource.getpagesize()
_FIRST = (  # brackets within brackets: a reader builds tables for each depth
    "$1/2$",
    r"$\boxed{((2+3)\cdot(4-(1+1)))}$",
    r"$\frac{(a+(b-1))(c+d)}{\sqrt{x^{2}+1}}$",
    r"$\{1,2\}\cup[0,(1+1))$",
    r"${{{{{{1}}}}}}+((((((2))))))$",
)


class Judge:
    """Judges in a fork of this process, and makes another where one was ended."""

    def __init__(self) -> None:
        import math_verify  # type: ignore[import-untyped]  # noqa: F401 -- for the forks

        logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it sets no signal
        for text in _FIRST:  # what is imported and built on first use
            _verdict(text, "0.5")
        _expressions.cache_clear()
        self._fork: _Fork | None = None

    def compare(self, response: str, truth: str) -> bool | str | None:
        """Return whether both mean the same; None: one holds none; or ``CUT``, ``WAITED``."""
        if self._fork is None:
            self._fork = _Fork()
        verdict: Any = self._fork.ask(response, truth)
        if verdict in (CUT, WAITED):
            self.close()
        if isinstance(verdict, BaseException):
            raise verdict
        told: bool | str | None = verdict
        return told

    def close(self) -> None:
        """End the fork; the next question makes another."""
        fork, self._fork = self._fork, None
        if fork is not None:
            fork.end()


class _Fork:
    """A child that judges one question after the other."""

    def __init__(self) -> None:
        asked_by, self._ask = os.pipe()
        self._told, tells = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._ask)
            os.close(self._told)
            _answer_for_ever(asked_by, tells)
        os.close(asked_by)
        os.close(tells)

    def ask(self, response: str, truth: str) -> Any:  # a verdict, or an error of math-verify
        body = pickle.dumps((response, truth))
        try:
            os.write(self._ask, len(body).to_bytes(4, "little") + body)
            head = self._read(4)
            return pickle.loads(self._read(int.from_bytes(head, "little")))
        except TimeoutError:
            return WAITED
        except (EOFError, BrokenPipeError):
            return CUT

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._ask)
        os.close(self._told)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not select.select([self._told], [], [], MAX_WAIT_S)[0]:
                raise TimeoutError
            more = os.read(self._told, count - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def _answer_for_ever(asked_by: int, tells: int) -> None:
    """Answer until nobody asks; never returns."""
    with suppress(BaseException):  # whatever it is, the fork ends, and that is an answer
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        if sys.platform == "linux":
            limit = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE + MAX_MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        sys.setrecursionlimit(MAX_DEPTH)
        with os.fdopen(asked_by, "rb") as questions:
            while head := questions.read(4):
                question = pickle.loads(questions.read(int.from_bytes(head, "little")))
                body = pickle.dumps(_judged(*question))
                os.write(tells, len(body).to_bytes(4, "little") + body)
    os._exit(0)


def _judged(response: str, truth: str) -> Any:
    """Return the verdict; the kernel ends this process when its time is over, wherever it is."""
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
    try:
        return _verdict(response, truth)
    except (MemoryError, RecursionError):
        return CUT
    except Exception as error:  # noqa: BLE001 -- told to who asked
        return RuntimeError(f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _verdict(response: str, truth: str) -> bool | None:
    """Return whether they are equal; None: one of them holds no expression."""
    from math_verify import verify

    expected, answered = _expressions(truth), _expressions(response)
    if not expected or not answered:
        return None
    return bool(_told(verify, expected, answered, timeout_seconds=None))


@lru_cache(maxsize=1024)  # a group shares its truth
def _expressions(text: str) -> list[Any]:  # Any: sympy has no types
    from math_verify import parse

    found: list[Any] = _told(parse, text, parsing_timeout=None)
    return found


def _told(function: Callable[..., Any], *given: Any, **settings: Any) -> Any:  # Any: math-verify's
    """Return what math-verify says, which takes any error for a no.

    Raises:
        MemoryError: it ran out of memory, which is no answer.
        RecursionError: it ran too deep, which is none either.
    """
    try:
        return function(*given, **settings, raise_on_error=True)
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 -- math-verify's own, which it answers by itself
        return function(*given, **settings)
