"""Generate games and win each by its walkthrough, through the workflow's own environment class.

python plugins/trinity-envs-alfworld/tests/golden/play_generated.py --count 200

Ends with 1 if a game is not won at the last command of its walkthrough.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from trinity_envs_alfworld.env import create_environment
from trinity_envs_alfworld.games import SPLITS, playable_games, task_type_of
from trinity_envs_alfworld.generate_room import SIZES
from trinity_envs_alfworld.generate_write import write_games
from trinity_envs_alfworld.oracle import WalkthroughPlayer, conversation, walkthrough_of

# large rooms take ten times as long as small ones
DEFAULT_SIZES = ("small", "tiny", "medium", "small", "large", "tiny", "medium", "small")


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", action="append", choices=SIZES, help="again for more")
    parser.add_argument("--processes", type=int, default=1, help="that generate")
    given = parser.parse_args()
    sizes = tuple(given.size or DEFAULT_SIZES)
    with tempfile.TemporaryDirectory() as made:
        began = time.perf_counter()
        options = {"seed": given.seed, "sizes": sizes, "num_processes": given.processes}
        summary = write_games(Path(made), count=given.count, **options)
        sys.stdout.write(f"generated {summary} in {time.perf_counter() - began:.0f} s\n")
        missed = play(made)
    return 1 if missed else 0


def play(root: str) -> list[Path]:
    """Play all games; print what happened and return those that were not won."""
    began = time.perf_counter()
    games = [game for split in SPLITS for game in playable_games(root, split)]
    missed = [game for game in games if not is_won(game)]
    for what, chosen in (("won", set(games) - set(missed)), ("missed", set(missed))):
        counts = Counter(task_type_of(game) for game in chosen)
        sys.stdout.write(f"{what} {len(chosen)} of {len(games)}: {dict(sorted(counts.items()))}\n")
    for game in missed:
        sys.stdout.write(f"not won: {game.relative_to(root)}\n")
    sys.stdout.write(f"played in {time.perf_counter() - began:.0f} s\n")
    return missed


def is_won(game: Path) -> bool:
    """Return whether the last command of the walkthrough wins, and none before it."""
    commands = walkthrough_of(game)
    env = create_environment(str(game))
    try:
        played = conversation(env, WalkthroughPlayer(commands), max_steps=len(commands))
        return env.won and played.reward == 1.0 and played.num_steps == len(commands)
    finally:
        env.close()


if __name__ == "__main__":
    sys.exit(main())
