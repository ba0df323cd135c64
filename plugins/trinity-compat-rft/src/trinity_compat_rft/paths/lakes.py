"""``trinity.common.workflows.envs.frozen_lake.utils``: maps and signs of the frozen lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trinity_compat_rft.workflows.frozen_lake import SYSTEM_PROMPT
from trinity_compat_rft.workflows.lake import has_way, random_map

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ACTION_LOOKUP",
    "GRID_LOOKUP",
    "MAP_LOOKUP",
    "SYSTEM_PROMPT",
    "generate_random_map",
    "get_goal_position",
    "is_valid",
]

MAP_LOOKUP = {b"P": 0, b"F": 1, b"H": 2, b"G": 3}
GRID_LOOKUP = {0: " P \t", 1: " _ \t", 2: " O \t", 3: " G \t", 4: " X \t", 5: " √ \t"}
ACTION_LOOKUP = {0: "None", 1: "Left", 2: "Down", 3: "Right", 4: "Up"}


def generate_random_map(
    size: int = 8, p: float = 0.8, seed: int = 0, max_steps: int = 5
) -> tuple[list[str], tuple[int, int]]:
    """Return a map, see :func:`random_map`, and row and column of its goal."""
    rows = random_map(size=size, p=min(1.0, p), seed=seed, max_steps=max_steps)
    return rows, next((r, line.index("G")) for r, line in enumerate(rows) if "G" in line)


def get_goal_position(random_map: NDArray[np.bytes_]) -> tuple[int, int] | None:
    """Return row and column of the goal ``b"G"``; None: there is none."""
    places = np.argwhere(random_map == b"G")
    return (int(places[0][0]), int(places[0][1])) if len(places) else None


def is_valid(board: list[list[str]], max_size: int, max_steps: int) -> bool:
    """Return whether a way of ``max_steps`` or so leads from ``S`` to ``G``.

    ``max_size`` is that of the board.
    """
    lines: list[Any] = [list(line) for line in board[:max_size]]
    start = next((r, line.index("S")) for r, line in enumerate(lines) if "S" in line)
    return has_way(lines, start, max_steps=max_steps)
