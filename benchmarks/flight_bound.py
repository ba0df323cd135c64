"""How fast groups in flight can be at all: the rule of ADR 20 with runs that only wait.

A few dozen steps of waits with a long tail lie 30 % off the mean of many: what a run of
``overlap.py`` reaches is to be held against what the rule allows for the very waits that it drew.
"""

from __future__ import annotations

import itertools
import math
import random
from statistics import mean

GROUPS, RUNS = 8, 8  # of a step, of a group


def longest_waits(num_steps: int, *, latency: float, sigma: float) -> list[float]:
    """Return the longest wait of each group, in seconds, as the workflow of ``overlap.py`` draws.

    Args:
        num_steps: of ``GROUPS`` groups each.
        latency: the mean of all waits.
        sigma: of their logarithm.
    """
    mu = math.log(latency) - sigma**2 / 2
    return [
        max(random.Random(f"{step}/{task}/{run}").lognormvariate(mu, sigma) for run in range(RUNS))
        for step in range(1, 1 + num_steps)
        for task in range(GROUPS)
    ]


def times_as_fast(waits: list[float], *, batches: int, window: float, first: int) -> float:
    """Return how many times as long the mean step takes where each waits for all of its groups.

    Args:
        waits: of the groups, in their order.
        batches: in flight.
        window: the share of their groups that may overtake.
        first: steps that are not counted.
    """
    ends = _ends_of_steps(waits, batches=batches, window=window)
    steps = [after - before for before, after in itertools.pairwise(ends)]
    in_turns = [max(waits[at : at + GROUPS]) for at in range(0, len(waits), GROUPS)]
    return mean(in_turns[first:]) / mean(steps[first - 1 :])


def _ends_of_steps(waits: list[float], *, batches: int, window: float) -> list[float]:
    capacity = batches * GROUPS
    widest = max(1, int(window * capacity))
    now, ends = 0.0, []
    running = {number: waits[number] for number in range(min(capacity, len(waits)))}
    num_begun = len(running)
    while len(running) >= GROUPS:
        taken = _ready(running, now=now, widest=widest)
        while len(taken) < GROUPS:
            now = min(end for end in running.values() if end > now)
            taken = _ready(running, now=now, widest=widest)
        ends.append(now)
        for number in taken:
            del running[number]
        for number in range(num_begun, min(num_begun + GROUPS, len(waits))):
            running[number] = now + waits[number]
        num_begun += GROUPS
    return ends


def _ready(running: dict[int, float], *, now: float, widest: int) -> list[int]:
    """Return the oldest whole groups, at most a batch of them."""
    taken: list[int] = []
    oldest: int | None = None  # that is not whole
    for number in sorted(running):
        if oldest is not None and number - oldest >= widest:
            break
        if running[number] > now:
            oldest = number if oldest is None else oldest
        elif len(taken) < GROUPS:
            taken.append(number)
    return taken
