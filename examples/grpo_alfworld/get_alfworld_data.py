"""Write the dataset of ALFWorld: a row for each game that may be played, by its path.

    python examples/grpo_alfworld/get_alfworld_data.py [--data FOLDER] [--output FOLDER]

The games are those of the published selection, shuffled by a seed; paths begin at ALFWORLD_DATA.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from trinity.common.rows import write_splits
from trinity.errors import TrinityError
from trinity_envs_alfworld.folder import data_folder
from trinity_envs_alfworld.games import DATA_VERSION, rows

OUTPUT = Path(__file__).parent / "alfworld_data"
SPLITS = {"train": "train", "test": "valid_seen", "valid_unseen": "valid_unseen"}  # ours: theirs
NEEDED = ("train", "test")
SEED = 42


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    given = parsed(arguments)
    data = data_folder(given.data)
    try:
        found = {
            ours: rows(data, theirs)
            for ours, theirs in SPLITS.items()
            if ours in NEEDED or (data / DATA_VERSION / theirs).is_dir()
        }
    except TrinityError as error:
        print(error, file=sys.stderr)
        return 1
    drawn = {split: random.Random(SEED).sample(games, len(games)) for split, games in found.items()}
    drawn["train"] = drawn["train"][: given.num_train]
    write_splits(given.output, drawn)
    for split, games in drawn.items():
        print(f"{given.output / split}.jsonl: {len(games):,} games")
    return 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="the folder with ALFWorld's files; else ALFWORLD_DATA")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the rows are written")
    parser.add_argument("--num-train", type=int, help="at most that many rows to train on")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
