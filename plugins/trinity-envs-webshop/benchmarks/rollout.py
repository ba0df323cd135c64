"""Measure episodes and environment steps a second with 1, 4 and 16 environments at once.

    python plugins/trinity-envs-webshop/benchmarks/rollout.py [--data FOLDER]

An oracle plays; no model is asked, so this is what the environment alone allows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trinity_envs_webshop.env import WebShopEnv
from trinity_envs_webshop.oracle import oracle_action
from trinity_envs_webshop.shop import Shop
from trinity_envs_webshop.synthetic import write_catalogue

NUM_EPISODES = 480


def main() -> None:
    """Print a line for each number of environments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="WebShop's files; else 1,000 invented products")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if given.data is None:
            write_catalogue(Path(made), num_products=1000)
        shop = Shop(given.data or Path(made))
        begun = time.process_time()
        env = WebShopEnv(shop)
        for session in range(1000):
            env.reset(session % len(shop.goals))
        milliseconds = time.process_time() - begun
        sys.stdout.write(f"reset {milliseconds:.3f} ms of CPU\n")
        for num_environments in (1, 4, 16):
            sys.stdout.write(f"{line(shop, num_environments)}\n")


def line(shop: Shop, num_environments: int) -> str:
    """Return what that many environments at once come to."""
    sessions = [number % len(shop.goals) for number in range(NUM_EPISODES)]
    begun, cpu = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(num_environments) as pool:
        num_steps = sum(pool.map(lambda session: played(shop, session), sessions))
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    return (
        f"{num_environments:>2} environments: {NUM_EPISODES / wall:>7,.0f} episodes/s, "
        f"{num_steps / wall:>7,.0f} steps/s, {cpu / num_steps * 1e3:.3f} ms of CPU a step"
    )


def played(shop: Shop, session: int) -> int:
    """Return how many steps the oracle took."""
    env = WebShopEnv(shop)
    env.reset(session)
    is_done, num_steps = False, 0
    while not is_done and num_steps < 15:
        is_done = env.step(oracle_action(env, words=env.instruction_text))[2]
        num_steps += 1
    return num_steps


if __name__ == "__main__":
    main()
