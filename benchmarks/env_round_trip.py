"""What a call of an environment in a process of its own costs, on either side.

    python benchmarks/env_round_trip.py [--calls 5000] [--bytes 2000]

The environment answers with a text of that length, as a room's description has, and counts nothing.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

from trinity.common.workflows.env_process import EnvProcess


@dataclass
class Room:
    """Says the same at each step."""

    num_bytes: int

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Return what an environment returns."""
        return "." * self.num_bytes, 0.0, False, {"admissible": [action]}

    def cpu_s(self) -> float:
        """Return the CPU time of this process so far."""
        return time.process_time()


def main() -> None:
    """Print the mean of many calls."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--calls", type=int, default=5000)
    arguments.add_argument("--bytes", type=int, default=2000)
    given = arguments.parse_args()
    began = time.perf_counter()
    env = EnvProcess("env_round_trip:Room", arguments={"num_bytes": given.bytes})
    print(f"start: {time.perf_counter() - began:.2f} s")
    theirs, ours, began = env.call("cpu_s"), time.process_time(), time.perf_counter()
    for _ in range(given.calls):
        env.call("step", "go to the kitchen")
    each = 1000 / given.calls
    print(
        f"a call: {(time.perf_counter() - began) * each:.3f} ms; CPU here "
        f"{(time.process_time() - ours) * each:.3f} ms, there "
        f"{(env.call('cpu_s') - theirs) * each:.3f} ms"
    )
    env.close()


if __name__ == "__main__":
    main()
