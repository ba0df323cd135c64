"""Write the dataset of WebShop: a row for each goal, by its session id.

    python examples/grpo_webshop/get_webshop_data.py [--data FOLDER] [--output FOLDER]

Test, evaluation and training are divided by the published shuffle; no test goal is trained on.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trinity.common.rows import write_splits
from trinity.errors import TrinityError
from trinity_envs_webshop.folder import data_folder
from trinity_envs_webshop.shop import Shop, ShopSettings
from trinity_envs_webshop.splits import Splits, splits_of

OUTPUT = Path(__file__).parent / "webshop_data"


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    given = parsed(arguments)
    settings = ShopSettings(num_products=given.num_products, human_goals=not given.synthetic_goals)
    try:
        splits = splits_of(Shop(data_folder(given.data), settings).goals)
    except TrinityError as error:
        print(error, file=sys.stderr)
        return 1
    write_sessions(splits, given.output, num_train=given.num_train)
    return 0


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="the folder with WebShop's files; else WEBSHOP_DATA")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the rows are written")
    parser.add_argument("--num-products", type=int, help="as workflow_args.num_products of the run")
    parser.add_argument("--synthetic-goals", action="store_true", help="human_goals: false")
    parser.add_argument("--num-train", type=int, help="at most that many rows to train on")
    return parser.parse_args(arguments)


def write_sessions(splits: Splits, folder: Path, *, num_train: int | None = None) -> None:
    """Write the session ids of each split, and say how many there are."""
    drawn = {
        "train": splits.train[:num_train],
        "evaluation": splits.evaluation,
        "test": splits.test,
    }
    rows = {
        split: [{"task_id": task_id, "target": ""} for task_id in ids]
        for split, ids in drawn.items()
    }
    write_splits(folder, rows)
    for split, ids in drawn.items():
        print(f"{folder / split}.jsonl: {len(ids):,} goals")
    if splits.is_shrunk:
        print("fewer than 3,000 goals: the same shares instead of the published 500 and 1,000")
    if splits.num_repeated:
        print(f"{splits.num_repeated:,} goals ask for the same as one held out: not trained on")


if __name__ == "__main__":
    sys.exit(main())
