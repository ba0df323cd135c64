"""A frozen lake: a map with holes, a player, moves that may slip.

Maps and slips are those of gymnasium's FrozenLake for the same seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from trinity.errors import BadTaskError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator

__all__ = ["MOVES", "Lake", "has_way", "random_map"]

MOVES = ("left", "down", "right", "up")  # in the order in which neighbours are slipped to
_STEPS = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
_SHOWN = {"S": " _ \t", "F": " _ \t", "H": " O \t", "G": " G \t"}
_PLAYER = {"H": " X \t", "G": " √ \t"}
MAX_ATTEMPTS = 10_000  # maps that are drawn until one has a way
SLIPS = 3  # directions that a slippery move may take, each as likely


class Lake:
    """The player's place on a map of ``S`` start, ``F`` ice, ``H`` hole and ``G`` goal.

    Args:
        rows: of the map, all as long as there are rows or more.
        is_slippery: a move goes left or right of its direction as often as straight on.
        seed: of the slips.
    """

    def __init__(self, rows: Sequence[str], *, is_slippery: bool, seed: int) -> None:
        self.rows = tuple(rows)
        self.is_slippery = is_slippery
        self._rng = _generator(seed)
        self._rng.random()  # the start is drawn too, from one
        self.place = next((r, line.index("S")) for r, line in enumerate(self.rows) if "S" in line)

    @property
    def tile(self) -> str:
        """Return what the player stands on."""
        return self.rows[self.place[0]][self.place[1]]

    @property
    def is_over(self) -> bool:
        """Return whether the player is in a hole or at the goal."""
        return self.tile in {"H", "G"}

    def move(self, direction: str) -> float:
        """Move in one of ``MOVES``, or where the ice takes the player; return 1 at the goal."""
        if self.is_over:
            return 0.0
        number = MOVES.index(direction)
        ways = [number - 1, number, number + 1] if self.is_slippery else [number]
        shares = np.cumsum(np.full(len(ways), 1.0 / len(ways)))
        way = ways[int(np.argmax(shares > self._rng.random()))]
        down, right = _STEPS[MOVES[way % len(MOVES)]]
        row = min(max(self.place[0] + down, 0), len(self.rows) - 1)
        column = min(max(self.place[1] + right, 0), len(self.rows[0]) - 1)
        self.place = (row, column)
        return float(self.tile == "G")

    def __str__(self) -> str:
        return "\n".join(
            "".join(self._shown(r, c) for c in range(len(line))) for r, line in enumerate(self.rows)
        )

    def _shown(self, row: int, column: int) -> str:
        tile = self.rows[row][column]
        return _PLAYER.get(tile, " P \t") if (row, column) == self.place else _SHOWN[tile]


def random_map(*, size: int, p: float, seed: int, max_steps: int) -> list[str]:
    """Return a square map on which a way of ``max_steps`` or so leads to the goal.

    Args:
        size: rows and columns, 2 or more.
        p: probability that a tile is ice.
        seed: of the map.
        max_steps: how far the way is looked for.

    Raises:
        BadTaskError: there is no such map, or it is too rare.
    """
    if size < 2 or not 0 <= p <= 1:
        raise BadTaskError(
            f"a lake of size {size} with p {p} has no start and goal. Give the row a size of 2 or "
            f"more and a p between 0 and 1."
        )
    rng = _generator(seed)
    for _ in range(MAX_ATTEMPTS):
        board = rng.choice(["F", "H"], (size, size), p=[p, 1 - p]).tolist()
        start, goal = _two_places(rng, size)
        board[start[0]][start[1]] = "S"
        board[goal[0]][goal[1]] = "G"
        if has_way(board, start, max_steps=max_steps):
            return ["".join(line) for line in board]
    raise BadTaskError(
        f"{MAX_ATTEMPTS} maps of size {size} with p {p} had no way of {max_steps} steps to the "
        f"goal. Raise p, or env_max_steps."
    )


def _generator(seed: int) -> Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int(seed))))


def _two_places(rng: Generator, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    while True:
        a, b, c, d = (int(rng.integers(0, size)) for _ in range(4))
        if (a, b) != (c, d):
            return (a, b), (c, d)


def has_way(board: list[list[str]], start: tuple[int, int], *, max_steps: int) -> bool:
    """Return whether a walk in depth reaches the goal.

    A tile counts with the steps of the first walk that comes there, which need not be the
    shortest: so the published maps were chosen.
    """
    waiting, seen = [(*start, 0)], set()
    while waiting:
        row, column, steps = waiting.pop()
        if steps > max_steps or (row, column) in seen:
            continue
        seen.add((row, column))
        for down, right in ((1, 0), (0, 1), (-1, 0), (0, -1)):
            r, c = row + down, column + right
            if not (0 <= r < len(board) and 0 <= c < len(board)):
                continue
            if board[r][c] == "G":
                return True
            if board[r][c] != "H":
                waiting.append((r, c, steps + 1))
    return False
