"""``trinity plan --simulate``: which style, lead and split of the GPUs a run would do best with.

Each of them is a run on a virtual clock (``simulated_run.py``): the run's own schedule, with times
that were recorded or given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trinity.common.sync_policy import policy_of
from trinity.errors import ConfigError

from trinity_debug.simulated_engines import Seconds
from trinity_debug.simulated_run import DEFAULT_WINDOW, Outcome, Setup, simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trinity.common.config import Config

__all__ = ["Simulation", "best_of", "setup_of", "simulation_lines", "times_of"]

TIMES = ("rollout", "tool", "train", "sync", "around", "failure", "restart")
_STYLES: tuple[tuple[str, dict[str, int]], ...] = (
    ("fixed", {"offset": 0}),
    ("fixed", {"offset": 1}),
    ("explorer_driven", {"lead": 2}),
    ("trainer_driven", {"lead": 2}),
    ("fully_async", {"lead": 2}),
    ("fully_async", {"lead": 3}),
)
_PARTS = (0.25, 0.5, 0.75)  # of the GPUs that engines get
_SHOWN = 10  # of the fastest
_MOST_FAILURES = 1000  # of an engine in a step
_AS_GOOD = 0.97  # of the best throughput: then fewer off-policy steps decide


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """What is asked for.

    Attributes:
        times: seconds by their names, of :data:`TIMES`.
        train_gpus: that the time of a train step was measured on.
        shared: how fast each side computes while the other does.
        steps: rollout steps of each simulated run.
        max_off_policy: the most off-policy steps that are acceptable.
        seed: of what is drawn.
    """

    times: Mapping[str, Seconds]
    train_gpus: int
    shared: float = 1.0
    steps: int = 40
    max_off_policy: int = 2
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A way to run, and what came of it."""

    setup: Setup
    outcome: Outcome

    @property
    def keys(self) -> str:
        """Return the settings that ask for it; what is not named has its default."""
        setup = self.setup
        words = [setup.style, f"max_inflight_batches {setup.lead}"]
        if setup.style == "fixed":
            words[1] = f"sync_offset {setup.offset}"
        if setup.interval > 1:
            words.append(f"sync_interval {setup.interval}")
        if setup.style == "fully_async" and setup.window != DEFAULT_WINDOW:
            words.append(f"window {setup.window:g}")
        return ", ".join(words)


def times_of(given: Sequence[str]) -> dict[str, Seconds]:
    """Return the times of ``NAME=MEAN`` and ``NAME=MEAN:SLOWEST``.

    Raises:
        ConfigError: a name is unknown, or what follows is no time.

    >>> times_of(["train=30", "tool=5"])["train"].mean
    30.0
    """
    found = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in TIMES:
            raise ConfigError(f"--time {text}: there is no {name!r}. There are {', '.join(TIMES)}.")
        found[name] = Seconds.parse(value)
        if name == "failure" and not found[name].mean:
            raise ConfigError(f"--time {text}: an engine that fails at once. Write more than 0.")
    return found


def setup_of(config: Config, asked: Simulation, *, requests: int, ranks: int) -> Setup:
    """Return the run that a configuration asks for.

    Args:
        config: a resolved stage.
        asked: the times.
        requests: calls of the workflow for a group.
        ranks: GPUs of the trainer.

    Raises:
        ConfigError: the time of a rollout or of a train step is missing, or engines fail all the
            time.
    """
    times, rollout, policy = dict(asked.times), config.explorer.rollout_model, policy_of(config)
    missing = [name for name in ("rollout", "train") if name not in times]
    if missing:
        raise ConfigError(
            f"a simulation needs the seconds of a {' and a '.join(missing)}: give --record RUN, "
            f"--time {missing[0]}=SECONDS, or --tflops and --tokens-per-s."
        )
    failure, restart_s = times.pop("failure", None), times.pop("restart", Seconds(mean=60.0)).mean
    step_s = sum(one.mean for one in times.values())
    least_s = step_s / _MOST_FAILURES - restart_s
    if failure is not None and failure.mean < least_s:
        raise ConfigError(
            f"--time failure={failure.mean:g}: an engine would fail more than {_MOST_FAILURES:,} "
            f"times in a step of {step_s:,.4g} s. Write {least_s:.3g} or more."
        )
    repeat = config.algorithm.repeat_times or 1
    return Setup(
        style=config.synchronizer.sync_style,
        offset=config.synchronizer.sync_offset,
        lead=config.explorer.max_inflight_batches,
        interval=policy.pull_every or policy.publish_every,
        window=config.explorer.window,
        groups=config.buffer.batch_size,
        rows=repeat,
        requests=requests,
        train_rows=config.buffer.train_batch_size or config.buffer.batch_size * repeat,
        steps=asked.steps,
        engines=rollout.engine_num,
        slots=config.explorer.runner_per_model,
        ranks=ranks,
        width=rollout.tensor_parallel_size,
        until_failure=failure.mean if failure else None,
        restart_s=restart_s,
        most_s=float(config.explorer.max_timeout),
        shared=asked.shared,
        **times,
    )


def simulation_lines(own: Setup, asked: Simulation, *, ranks_of: Callable[[int], int]) -> list[str]:
    """Return what would come of the run, of others of other styles and splits, and the best.

    Args:
        own: as the configuration asks for it; without GPUs no other split is tried.
        asked: the times, and what is acceptable.
        ranks_of: says how many ranks train beside so many engines; 0: they do not fit.
    """
    tried = {_name(one): one for one in [own, *_others(own, ranks_of=ranks_of)]}
    made = [Candidate(setup=one, outcome=_of(one, asked)) for one in tried.values()]
    how = "one process (--local), in turns" if own.is_local else "over Ray"
    lines = [f"simulated, {how}: {asked.steps} rollout steps on a virtual clock, {_times(own)}"]
    lines += [f"  {min(_SHOWN, len(made))} of {len(made)} arrangements, the fastest first"]
    sides = "GPUs of engines + trainer" if own.gpus else "engines + trainer ranks, without GPUs"
    lines += [f"  settings | {sides} | rows/s | s a step | engines idle "]
    lines[-1] += "| trainer idle | off-policy steps, mean and most"
    ranked = sorted(made, key=lambda one: -one.outcome.rows_per_s)
    shown = [one for n, one in enumerate(ranked) if n < _SHOWN or one is made[0]]
    lines += [_line(one) + " (this configuration)" * (one is made[0]) for one in shown]
    best = best_of(made, most=asked.max_off_policy)
    if best is None:
        return [*lines, f"none has at most {asked.max_off_policy} off-policy steps"]
    gain = best.outcome.rows_per_s / made[0].outcome.rows_per_s
    lines.append(
        f"with at most {asked.max_off_policy} off-policy steps: {best.keys}, {_split(best.setup)} "
        f"({gain:.2f} x the rows/s of this configuration)"
    )
    return lines


def best_of(made: Sequence[Candidate], *, most: int) -> Candidate | None:
    """Return the one with most rows a second, of those as fast the one with the newest rows."""
    allowed = [one for one in made if one.outcome.most_off_policy <= most]
    top = max((one.outcome.rows_per_s for one in allowed), default=0.0)
    near = [one for one in allowed if one.outcome.rows_per_s >= _AS_GOOD * top]
    return min(
        near, key=lambda one: (one.outcome.off_policy, -one.outcome.rows_per_s), default=None
    )


def _others(own: Setup, *, ranks_of: Callable[[int], int]) -> Iterator[Setup]:
    sizes, gpus = ({own.engines} if not own.in_turns else set[int]()), own.gpus
    if gpus > 1:
        sizes |= {max(1, math.floor(part * gpus / own.width)) for part in _PARTS}
    for engines in sorted(sizes):
        ranks = own.ranks if engines == own.engines or gpus <= 1 else ranks_of(engines)
        if ranks < 1 or (gpus > 1 and engines * own.width + ranks > gpus):
            continue
        for style, settings in _STYLES:
            others: dict[str, Any] = {"style": style, "in_turns": False}
            others |= {"interval": 1, "window": DEFAULT_WINDOW} | settings
            yield replace(own, engines=engines, ranks=ranks, **others)


def _of(setup: Setup, asked: Simulation) -> Outcome:
    """Return the outcome; a train step is shared by as many ranks as it has rows."""
    useful, measured = (min(n, setup.train_rows) for n in (setup.ranks, asked.train_gpus))
    train = replace(setup.train, mean=setup.train.mean * measured / useful)
    return simulated(replace(setup, train=train), seed=asked.seed)


def _name(setup: Setup) -> tuple[object, ...]:
    return policy_of(setup.config), setup.engines, setup.ranks, setup.in_turns


def _split(setup: Setup) -> str:
    """Return who has which GPUs; without GPUs, how many processes there are of each side."""
    used = setup.engines * setup.width
    if setup.gpus == 0:
        return f"{used} + {setup.ranks}"
    if setup.in_turns or used + setup.ranks > setup.gpus:
        return f"{setup.gpus} GPU{'s'[: setup.gpus > 1]} of both"
    return f"{used} + {setup.ranks} GPUs"


def _times(setup: Setup) -> str:
    words = [f"rollout {setup.rollout}"]
    words += [f"tool {setup.tool}"] if setup.tool.mean else []
    words += [f"train step {setup.train}", f"sync {setup.sync}"]
    if setup.until_failure is not None:
        words.append(
            f"an engine fails every {setup.until_failure:,.0f} s, is back after "
            f"{setup.restart_s:,.0f} s"
        )
    return ", ".join(words)


def _line(one: Candidate) -> str:
    found = one.outcome
    lost = f"; {found.num_lost:,} rollouts lost" if found.num_lost else ""
    return (
        f"  {one.keys} | {_split(one.setup)} | {found.rows_per_s:,.4g} | {found.step_s:,.4g} | "
        f"{found.engines_idle:.0%} | {found.trainer_idle:.0%} | {found.off_policy:.1f}, "
        f"{found.most_off_policy}{lost}"
    )
