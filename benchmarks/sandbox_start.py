"""What a sandbox costs a command: the same command inside and outside, in turns.

    python benchmarks/sandbox_start.py [--runs 100] [--limit-ms 40]

The command is ``python -ISc pass``. Printed are the median milliseconds of each sandbox that works
on this machine, without one, and the difference. With ``--limit-ms`` the exit code is 1 where the
difference of ``auto`` is above it. Other processes on the machine make all of them slower.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from statistics import median, quantiles
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity_sandbox.choice import sandbox_named

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("bwrap", "landlock", "container", "limits")
OUTSIDE = "no sandbox"


def main() -> int:
    """Print the table; return 1 where the limit is passed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--limit-ms", type=float, default=float("inf"))
    options = parser.parse_args()
    chosen = sandbox_named("auto").name
    times = in_turns({OUTSIDE: outside, **sandboxes()}, options.runs)
    base = median(times[OUTSIDE])
    print(f"{'':10} {'median ms':>9} {'90 %':>7} {'more':>7}")
    for name, found in times.items():
        high = quantiles(found, n=10)[-1]
        print(f"{name:10} {median(found):9.1f} {high:7.1f} {median(found) - base:7.1f}")
    more = median(times[chosen]) - base
    print(
        f"auto is {chosen}: {more:.1f} ms more than without; the limit is {options.limit_ms:g} ms"
    )
    return int(more > options.limit_ms)


def outside() -> None:
    """Run the command as any program would."""
    subprocess.run([sys.executable, "-ISc", "pass"], check=True)


def sandboxes() -> dict[str, Callable[[], object]]:
    """Return what runs the command in each sandbox that works here; tell of the others."""
    found: dict[str, Callable[[], object]] = {}
    for name in NAMES:
        try:
            sandbox = sandbox_named(name)
        except ConfigError as error:
            print(f"not measured: {error}")
            continue
        program, binds = sandbox.python()
        command = [program, "-ISc", "pass"]
        found[name] = lambda box=sandbox, line=command, seen=binds: box.run(line, binds=seen)
    return found


def in_turns(sides: dict[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    """Return the milliseconds of each side's runs, after one that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(runs + 1):
        for name, run in sides.items():
            began = time.perf_counter()
            run()
            if number:
                times[name].append(1000 * (time.perf_counter() - began))
    return times


if __name__ == "__main__":
    sys.exit(main())
