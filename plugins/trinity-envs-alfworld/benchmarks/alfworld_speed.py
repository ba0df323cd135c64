"""Measure the engine in its processes: faster than without the caches, flat in memory, the same.

    python plugins/trinity-envs-alfworld/benchmarks/alfworld_speed.py [speed memory same rollout]

Times are CPU time of the processes, so that other work on the machine counts little.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

from trinity.common.workflows.env_pool import EnvPool, shared_pool
from trinity.common.workflows.env_process import EnvProcess
from trinity_envs_alfworld.env import ENGINE, TIMEOUTS, create_environment
from trinity_envs_alfworld.generate import games

NUM_RESETS, NUM_GAMES = 1000, 50
NUM_PLAYS, NUM_PROCESSES = 36, 12
RUNS_OF_A_GAME = 8
_TICK = os.sysconf("SC_CLK_TCK")


def main(wanted: list[str]) -> None:
    """Print what was asked for, else all."""
    parts = {"speed": speed, "memory": memory, "same": same, "rollout": rollout}
    for name, part in parts.items():
        if not wanted or name in wanted:
            part()


def invented(size: str, count: int) -> list[dict[str, Any]]:
    """Return what the files of so many invented games hold."""
    return [
        dict(content) for _, content in islice(games(seed=7, sizes=(size,), prove=False), count)
    ]


def speed() -> None:
    """Compare with the plain engine, in three sizes of rooms."""
    for size in ("small", "medium", "large"):
        (game,) = invented(size, 1)
        plain, fast = (_times(game, fast=is_fast) for is_fast in (False, True))
        say(f"{size}: milliseconds of CPU, plain -> with the caches")
        for name in plain:
            ratio = plain[name] / fast[name]
            say(f"  {name:<22} {plain[name]:>8.1f} -> {fast[name]:>6.1f}  {ratio:.1f} times")


def _times(game: dict[str, Any], *, fast: bool) -> dict[str, float]:
    process = EnvProcess(ENGINE, arguments={"fast": fast})
    clock = _Clock(process)
    first = clock.of(lambda: (process.call("load", game), process.call("reset")))
    repeated = clock.of(lambda: [process.call("reset") for _ in range(5)]) / 5
    commands = [*game["walkthrough"][:-1], "look", "inventory", "examine nothing"] * 3
    process.call("reset")
    whole = clock.of(lambda: [process.call("step", command) for command in commands])
    process.close()
    return {
        "load and first reset": first,
        "repeated reset": repeated,
        "step": whole / len(commands),
    }


class _Clock:
    """CPU milliseconds of a process."""

    def __init__(self, process: EnvProcess) -> None:
        self._stat = Path(f"/proc/{process.pid}/stat")

    def of(self, doing: Any) -> float:
        """Return what doing that takes."""
        before = self.ticks()
        doing()
        return max(0.5, self.ticks() - before) / _TICK * 1000

    def ticks(self) -> int:
        """Return how long it has worked."""
        fields = self._stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])


def memory() -> None:
    """Reset 50 games 1,000 times in all, in one process."""
    chosen = invented("small", NUM_GAMES)
    process = EnvProcess(ENGINE)
    for number in range(NUM_RESETS):
        if number % 5 == 0:  # a group of five plays, then another game
            process.call("load", chosen[number // 5 % NUM_GAMES])
        process.call("reset")
        if number + 1 in {50, 250, 500, 750, 1000}:
            say(f"after {number + 1:>5} resets: {_resident_mb(process.pid):.0f} MB resident")
    process.close()


def _resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def same() -> None:
    """Compare 36 plays at a time in 12 processes with the same plays one after the other."""
    chosen = invented("small", NUM_PROCESSES)
    pool = EnvPool(ENGINE)
    plays = [chosen[number % NUM_PROCESSES] for number in range(NUM_PLAYS)]
    expected = [_played(pool, game) for game in plays]
    with ThreadPoolExecutor(NUM_PROCESSES) as threads:
        found = list(threads.map(lambda game: _played(pool, game), plays))
    pool.close()
    equal = sum(one == other for one, other in zip(found, expected, strict=True))
    won = sum(one[-1][1] == 1.0 for one in found)
    say(f"{equal} of {NUM_PLAYS} plays in {NUM_PROCESSES} processes equal serial ones; {won} won")


def _played(pool: EnvPool, game: dict[str, Any]) -> list[Any]:
    with pool.lease(game) as engine:
        return [engine.reset(), *(engine.step(command) for command in game["walkthrough"])]


def rollout() -> None:
    """Play games that are new to the processes, eight runs of each, 1, 4 and 16 at once.

    As a group of GRPO is played, through what the workflows use; no model is asked.
    """
    for size, num_games in (("small", 12), ("large", 4)):
        with tempfile.TemporaryDirectory() as folder:
            for number, num_parallel in enumerate((1, 4, 16)):
                files = _written(Path(folder), size, first=number * num_games, count=num_games)
                say(f"{size}, {_rollout(files, num_parallel)}")


def _written(folder: Path, size: str, *, first: int, count: int) -> list[Path]:
    files = []
    for number, game in enumerate(invented(size, first + count)[first:], start=first):
        files.append(folder / f"{number}.tw-pddl")
        files[-1].write_text(json.dumps(game))
    return files


def _rollout(files: list[Path], num_parallel: int) -> str:
    (warm_up,) = invented("tiny", 1)
    pool = shared_pool(ENGINE, arguments={"fast": True}, timeouts=TIMEOUTS)
    for lease in [pool.lease(warm_up) for _ in range(num_parallel)]:
        lease.reset()
        lease.close()
    runs = [file for file in files for _ in range(RUNS_OF_A_GAME)]
    clocks = [_Clock(slot.process) for slot in pool._free]
    begun, before = time.perf_counter(), sum(clock.ticks() for clock in clocks)
    with ThreadPoolExecutor(num_parallel) as threads:
        num_steps = sum(threads.map(_num_steps, runs))
    wall = time.perf_counter() - begun
    cpu = (sum(clock.ticks() for clock in clocks) - before) / _TICK
    pool.close()
    return (
        f"{num_parallel:>2} at once: {len(runs) / wall:.1f} episodes/s, {num_steps / wall:.0f} "
        f"steps/s; of CPU {cpu / len(runs) * 1000:.0f} ms an episode of "
        f"{num_steps / len(runs):.0f} steps, {len(runs) / cpu:.1f} episodes/s a core"
    )


def _num_steps(file: Path) -> int:
    env, commands = create_environment(file), json.loads(file.read_bytes())["walkthrough"]
    env.reset()
    for command in commands:
        env.step(command)
    env.close()
    return len(commands)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
