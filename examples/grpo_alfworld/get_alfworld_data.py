"""Write the dataset of ALFWorld: a row for each game that may be played, by its path.

    python examples/grpo_alfworld/get_alfworld_data.py [--data FOLDER] [--output FOLDER]

The games are those of the published selection, shuffled by a seed; paths begin at ALFWORLD_DATA.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

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
    write_splits(found, given.output, num_train=given.num_train)
    return 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="the folder with ALFWorld's files; else ALFWORLD_DATA")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the rows are written")
    parser.add_argument("--num-train", type=int, help="at most that many rows to train on")
    return parser.parse_args(arguments)


def write_splits(
    found: dict[str, list[dict[str, str]]], folder: Path, *, num_train: int | None = None
) -> None:
    """Write a file for each split, and the file that names the splits."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, games in found.items():
        drawn = random.Random(SEED).sample(games, len(games))
        drawn = drawn[:num_train] if split == "train" else drawn
        lines = (json.dumps(row) + "\n" for row in drawn)
        (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{folder / split}.jsonl: {len(drawn):,} games")
    names = json.dumps({"splits": list(found)})
    (folder / "dataset_dict.json").write_text(names, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
