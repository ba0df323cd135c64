"""Measure clicks, searches, building and memory at some number of products.

python plugins/trinity-envs-webshop/benchmarks/reach.py --products 100000
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_QUERIES, NUM_SESSIONS = 200, 2000
BUILD = "import sys, trinity_envs_webshop.assets as a; a.fetch(data=sys.argv[1])"


def main() -> None:
    """Print one JSON object with the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="a folder with data; else they are generated")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = given.data or Path(made)
        numbers = json.dumps(measured(folder, num_products=given.products), indent=1)
        sys.stdout.write(f"{numbers}\n")


def measured(folder: Path, *, num_products: int) -> dict[str, float]:
    """Return the numbers; each kind of memory is looked at in a fresh process."""
    if not (folder / "items_shuffle.json").exists():
        code = "import sys, pathlib, trinity_envs_webshop.synthetic as s; "
        code += "s.write_catalogue(pathlib.Path(sys.argv[1]), num_products=int(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", code, str(folder), str(num_products)], check=True)
    cpu = os.times()
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], check=True)
    built = os.times()
    build_cpu = built.children_user + built.children_system
    build_cpu -= cpu.children_user + cpu.children_system
    return {"products": num_products, "build_cpu_s": round(build_cpu, 2), **in_use(folder)}


def in_use(folder: Path) -> dict[str, float]:
    """Return times and memory of a shop that is open in this process."""
    from trinity_envs_webshop.env import WebShopEnv
    from trinity_envs_webshop.shop import Shop

    before = resident_mb()
    begun = time.process_time()
    shop = Shop(folder)
    numbers = {"open_cpu_s": time.process_time() - begun, "goals": len(shop.goals)}
    env = WebShopEnv(shop)
    for _ in sessions(env, range(5)):
        pass
    clicks, searches = [], []
    for kind, seconds in sessions(env, range(5, 5 + NUM_QUERIES)):
        (searches if kind == "search" else clicks).append(seconds)
    numbers["click_ms_mean"] = statistics.fmean(clicks) * 1e3
    numbers["click_ms_p99"] = statistics.quantiles(clicks, n=100)[-1] * 1e3
    numbers["search_ms_mean"] = statistics.fmean(searches) * 1e3
    numbers["search_ms_p99"] = statistics.quantiles(searches, n=100)[-1] * 1e3
    numbers["resident_mb"] = resident_mb() - before
    many = WebShopEnv(shop)
    for session in range(NUM_SESSIONS):
        many.reset(session % len(shop.goals))
        many._session = None
        many.reset(f"customer {session}")
        many.step(f"search[{many.instruction_text}]")
        many.step(f"click[{list(many.session.page.clickables)[3]}]")
    gc.collect()
    numbers["with_2000_sessions_mb"] = resident_mb() - before
    numbers["whole_process_mb"] = resident_mb()
    return {name: round(value, 3) for name, value in numbers.items()}


def sessions(env: object, numbers: range) -> Iterator[tuple[str, float]]:
    """Yield the kind and the CPU seconds of each step of some of the oracle's sessions."""
    from trinity_envs_webshop.oracle import oracle_action

    for number in numbers:
        env.reset(number % len(env.shop.goals))
        words, is_done, count = env.instruction_text, False, 0
        while not is_done and count < 12:
            action = oracle_action(env, words=words)
            begun = time.process_time()
            _, _, is_done, _ = env.step(action)
            yield action.partition("[")[0], time.process_time() - begun
            count += 1


def resident_mb() -> float:
    """Return the memory of this process that is its own or shared, in MB."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
