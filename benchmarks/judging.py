"""What it costs to judge mathematical answers, beside judging them in the thread that asks.

    python benchmarks/judging.py [--answers 300] [--threads 1,2]

plain     numbers, compared without a process
latex     fractions and sums
ordinary  half of each
costly    power towers, which are cut; a tenth of the answers in ``mixed``, which has a third latex

CPU milliseconds are those of all processes together, for an answer. The judges are warm: what they
take to start (``start``, once a process of trinity) is told apart. In the thread nothing is
bounded, so there is no such number for ``mixed``.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
from trinity.common.rewards import judge
from trinity.common.rewards.equivalence import is_equivalent
from trinity.common.workflows.env_pool import end_free_environments
from trinity.errors import JudgementCutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Pair = tuple[str, str]


def main() -> None:
    """Print a line for each kind of answer and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--threads", default="1,2")
    given = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it sets no signal
    numbers = itertools.count(1)  # no answer twice: verdicts are kept
    in_thread(*pair_of("latex", next(numbers)))  # imports
    for threads in map(int, given.threads.split(",")):
        start = Cost.of(bounded, pairs_of("latex", numbers, count=4 * threads), threads=threads)
        print(f"{threads} threads  start     {start.cpu_s:6.2f} CPU s")
        for kind in ("plain", "latex", "ordinary", "mixed"):
            pairs = pairs_of(kind, numbers, count=given.answers)
            cost = Cost.of(bounded, pairs, threads=threads)
            line = f"{threads} threads  {kind:9}{cost}"
            if kind != "mixed":
                bare = Cost.of(in_thread, pairs, threads=threads)
                line += f"   in the thread{bare}   CPU ratio {cost.cpu_s / bare.cpu_s:.2f}"
                line += f", speed ratio {bare.wall_s / cost.wall_s:.2f}"
            print(line, flush=True)
        end_free_environments()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What judging some answers took, in seconds."""

    count: int
    cpu_s: float
    wall_s: float

    @classmethod
    def of(cls, function: Callable[[str, str], object], pairs: list[Pair], *, threads: int) -> Cost:
        """Judge, and measure."""
        before, began = cpu_s_of_all(), time.monotonic()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda pair: function(*pair), pairs))
        wall_s = time.monotonic() - began
        return cls(count=len(pairs), cpu_s=cpu_s_of_all() - before, wall_s=wall_s)

    def __str__(self) -> str:
        return f"{self.cpu_s * 1000 / self.count:7.2f} CPU ms {self.count / self.wall_s:7.0f} /s"


def cpu_s_of_all() -> float:
    """Return the CPU seconds of this process and of those below it, running ones included."""
    own = psutil.Process()
    # of each: user, system, and both of its children that ended
    return sum(sum(one.cpu_times()[:4]) for one in (own, *own.children(recursive=True)))


def pairs_of(kind: str, numbers: Iterator[int], *, count: int) -> list[Pair]:
    """Return answers that were not judged before, with their truths."""
    return [pair_of(kind, next(numbers)) for _ in range(count)]


def pair_of(kind: str, number: int) -> Pair:
    """Return a response and a truth."""
    if kind == "mixed":
        kind = "costly" if number % 10 == 0 else ("latex" if number % 3 == 0 else "plain")
    if kind == "ordinary":
        kind = "latex" if number % 2 else "plain"
    if kind == "plain":
        return f"{number}.5", str(number)
    if kind == "latex":
        return rf"It is $\frac{{{number}}}{{7}} + x$.", f"$x + {number}/7$"
    return f"$9^{{9^{{9^{{{number}}}}}}}$", "5"


def bounded(response: str, truth: str) -> None:
    """Judge as a run does."""
    with suppress(JudgementCutError):
        is_equivalent(response, truth)


def in_thread(response: str, truth: str) -> None:
    """Judge without bound, as a judge does inside."""
    judge._verdict(response, truth)


if __name__ == "__main__":
    main()
