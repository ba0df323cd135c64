"""Say what is missing of the engine and of a data folder, by structure and counts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from trinity_envs_alfworld.failures import INSTALL
from trinity_envs_alfworld.games import (
    DATA_VERSION,
    PUBLISHED_COUNTS,
    SPLITS,
    playable_games,
    read_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["GENERATED", "expected_counts", "missing_engine", "missing_games"]

GENERATED = "generated.json"  # in a folder of invented games
_PACKAGES = ("alfworld", "textworld", "fast_downward")


def missing_engine() -> str:
    """Return which packages of the engine are not installed, in words; imports none of them."""
    absent = [name for name in _PACKAGES if find_spec(name) is None]
    return f"the package {' and '.join(absent)}; run: {INSTALL}" if absent else ""


def missing_games(root: Path) -> str:
    """Return what a data folder lacks, in words; empty: it holds all games."""
    if not (root / DATA_VERSION).is_dir():
        return (
            f"{root} holds no folder {DATA_VERSION}; if the games are elsewhere, set ALFWORLD_DATA"
        )
    expected = expected_counts(root)
    counts = {split: len(playable_games(root, split)) for split in SPLITS if expected[split]}
    wrong = [
        f"{split} holds {found:,} games to play, not {expected[split]:,}"
        for split, found in counts.items()
        if found != expected[split]
    ]
    return f"{root / DATA_VERSION} is not whole: {'; '.join(wrong)}" if wrong else ""


def expected_counts(root: Path) -> Mapping[str, int]:
    """Return how many games there are to be in each split: the published, or those invented."""
    mark = root / GENERATED
    if not mark.is_file():
        return PUBLISHED_COUNTS
    try:
        counts = read_json(mark)["num_games"]
        return {split: int(counts.get(split, 0)) for split in SPLITS}
    except (ValueError, KeyError, TypeError, AttributeError):
        return PUBLISHED_COUNTS  # the making of them was cut short
