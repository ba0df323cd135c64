"""What it costs to judge mathematical answers, in CPU milliseconds each, of all processes together.

    python benchmarks/judging.py [--answers 300] [--threads 1,8]

plain    numbers, compared without a process
latex    fractions and sums; also judged in this process, without a bound, for the ratio
costly   power towers, which are cut; a tenth of the answers in ``mixed``, which has a third latex

The start of the judges is counted too: two CPU seconds or so for each of them.
"""

from __future__ import annotations

import argparse
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from trinity.common.rewards import judge
from trinity.common.rewards.equivalence import is_equivalent
from trinity.common.workflows.env_pool import end_free_environments
from trinity.errors import JudgementCutError

if TYPE_CHECKING:
    from collections.abc import Callable

Pair = tuple[str, str]


def main() -> None:
    """Print a line for each kind of answer and number of threads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--threads", default="1,8")
    given = parser.parse_args()
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it sets no signal
    seed = 0
    for threads in map(int, given.threads.split(",")):
        for kind in ("plain", "latex", "mixed"):
            seed += given.answers  # no answer twice: verdicts are kept
            pairs = [pair_of(kind, seed + place) for place in range(given.answers)]
            cost = cpu_ms(bounded, pairs, threads=threads)
            print(f"{threads} threads  {kind:6} {cost:7.2f} ms", end="", flush=True)
            if kind == "latex":
                bare = cpu_ms(judge._verdict, pairs, threads=1)
                print(f"   in this process {bare:.2f} ms, ratio {cost / bare:.2f}", end="")
            print()


def pair_of(kind: str, number: int) -> Pair:
    """Return a response and a truth."""
    if kind == "mixed":
        kind = "costly" if number % 10 == 0 else ("latex" if number % 3 == 0 else "plain")
    if kind == "plain":
        return f"{number}.5", str(number)
    if kind == "latex":
        return rf"It is $\frac{{{number}}}{{7}} + x$.", f"$x + {number}/7$"
    return f"$9^{{9^{{9^{{{number}}}}}}}$", "5"


def bounded(response: str, truth: str) -> None:
    """Judge as a run does."""
    with suppress(JudgementCutError):
        is_equivalent(response, truth)


def cpu_ms(function: Callable[[str, str], object], pairs: list[Pair], *, threads: int) -> float:
    """Return the mean CPU milliseconds of a judgement; the judges are ended, to be counted."""
    before = sum(os.times()[:4])
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda pair: function(*pair), pairs))
    end_free_environments()
    return (sum(os.times()[:4]) - before) * 1000 / len(pairs)


if __name__ == "__main__":
    main()
