"""Whether two mathematical texts mean the same, judged in bounded time.

    equal texts, plain numbers, simple fractions,
    rows of integers, of which the last counts     here
    what looks costly (powers of powers, ...)      a process of its own (``judge``), one at a time
    the rest                                       as many such processes as there are cores

All threads share the processes, which end with this one. What takes more than half a CPU second is
cut there; only what looks costly too waits for what looks costly.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from fractions import Fraction
from functools import lru_cache

from trinity.common.rewards.judge import CUT, MAX_CPU_S, MAX_WAIT_S, WAITED
from trinity.errors import JudgementCutError

__all__ = ["is_equivalent"]

MAX_CHARACTERS = 2000  # the answer stands at the end
MAX_JUDGES = 16  # of 120 MB each; they are started when so many are asked at once
JUDGE = "trinity.common.rewards.judge:Judge"
CLOSE = Fraction(1, 1000)  # numbers that are nearer may be roundings of each other
_SHOWN = 80

_INTEGER = re.compile(r"\s*[+-]?\d{1,18}\s*", re.ASCII)
_ROW = re.compile(r"\s*\d{1,9}(?:\s+\d{1,2})+\s*", re.ASCII)
_NUMBER = re.compile(
    r"-?(?:\d{1,9}(?:\.\d{1,9})?|\d{1,9}/[1-9]\d{0,8}|\\frac\{\d{1,9}\}\{[1-9]\d{0,8}\})", re.ASCII
)
_COSTLY = re.compile(  # it decides who waits for whom, and bounds nothing
    r"!|binom|choose|\\(?:int|sum|prod|lim)|\^[^\s$^]*\^|(?:\^|\*\*)[\s{(]*\d{3}"
    r"|\)\^.*\)\^|[({\[]{20}|(?:\\frac\{){8}",
    re.DOTALL,
)

_costly_place = threading.BoundedSemaphore(1)
_num_cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
_places = threading.BoundedSemaphore(min(MAX_JUDGES, _num_cores))


def is_equivalent(response: str, truth: str) -> bool:
    """Return whether the last mathematical expression of the response equals the truth.

    Raises:
        JudgementCutError: nobody can say in bounded time; or the machine was too busy to be asked.

    >>> is_equivalent("1/2", "0.5")
    True
    """
    if not response.strip() or not truth.strip():
        return False
    if response.strip() == truth.strip():
        return True
    verdict: bool | str | None = _told_by_numbers(response, truth)
    if verdict is None:
        verdict = _verdict(response[-MAX_CHARACTERS:], truth[-MAX_CHARACTERS:])
    if verdict == CUT:
        raise JudgementCutError(
            f"whether {_shown(response)} equals {_shown(truth)} cannot be said in {MAX_CPU_S:g} "
            f"CPU seconds. The run has no reward and is left out; other runs go on. Nothing is to "
            f"be done unless many are: then look at these answers, or compare them by a reward "
            f"function of your own."
        )
    return bool(verdict)


def _told_by_numbers(response: str, truth: str) -> bool | None:
    """Return whether two plain numbers are equal; None: they are not plain, or nearly equal."""
    if _INTEGER.fullmatch(response) and _INTEGER.fullmatch(truth):
        return int(response) == int(truth)
    answered, expected = _number(_last(response)), _number(truth)
    if answered is None or expected is None or 0 < abs(answered - expected) < CLOSE:
        return None
    return answered == expected


def _last(text: str) -> str:
    """Return the last integer of a row of them; another text as it is.

    Three digits may be thousands of the integer before them: such a row is left to the judge.
    """
    return text.rsplit(maxsplit=1)[-1] if _ROW.fullmatch(text) else text


def _number(text: str) -> Fraction | None:
    text = text.strip()
    for begin, end in (("$", "$"), ("\\boxed{", "}")):
        if text.startswith(begin) and text.endswith(end):
            text = text[len(begin) : -len(end)].strip()
    if not _NUMBER.fullmatch(text):
        return None
    return Fraction(text.replace("\\frac{", "").replace("}{", "/").rstrip("}"))


@lru_cache(maxsize=4096)  # the answers of a group repeat each other
def _verdict(response: str, truth: str) -> bool | str | None:
    from trinity.common.workflows.env_pool import shared_pool

    timeouts = {"compare": 2 * MAX_WAIT_S}
    place = _costly_place if _COSTLY.search(response) or _COSTLY.search(truth) else _places
    with place, shared_pool(JUDGE, arguments={}, timeouts=timeouts).lease() as judge:
        verdict: bool | str | None = judge.call("compare", response, truth)
    if verdict == WAITED:  # raised, for what is returned is remembered
        raise JudgementCutError(
            f"whether {_shown(response)} equals {_shown(truth)} was not said in {MAX_WAIT_S:g} s "
            f"of waiting: the machine gave the judge too little time. The run has no reward and is "
            f"left out; the same answer is asked again the next time. Give the run more cores, or "
            f"start less beside it."
        )
    return verdict


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= _SHOWN else f"...{line[-_SHOWN:]}")
