"""A Sudoku: its board, what may be written into it, and puzzles to solve."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Board", "is_valid", "new_puzzle"]

Board = list[list[int]]  # 0: empty
SHARE_OF_HOLES = 0.5


def is_valid(board: Sequence[Sequence[int]]) -> bool:
    """Return whether no row, column or block holds a number twice.

    >>> is_valid([[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    True
    >>> is_valid([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    False
    """
    for unit in _units(board):
        numbers = [number for number in unit if number]
        if len(numbers) != len(set(numbers)):
            return False
    return True


def new_puzzle(*, seed: int, size: int = 9) -> tuple[Board, Board]:
    """Return a puzzle with half of its cells empty, and a solution.

    Args:
        seed: of the numbers and of the holes.
        size: rows, columns and numbers, a square number.
    """
    rng = random.Random(seed)
    solution = [[0] * size for _ in range(size)]
    _fill(solution, rng)
    cells = [(row, column) for row in range(size) for column in range(size)]
    holes = set(rng.sample(cells, int(len(cells) * SHARE_OF_HOLES)))
    puzzle = [
        [0 if (row, column) in holes else number for column, number in enumerate(line)]
        for row, line in enumerate(solution)
    ]
    return puzzle, solution


def _units(board: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    size = len(board)
    block = math.isqrt(size)
    for place in range(size):
        top, left = place // block * block, place % block * block
        yield list(board[place])
        yield [board[row][place] for row in range(size)]
        yield [board[top + i // block][left + i % block] for i in range(size)]


def _fill(board: Board, rng: random.Random) -> bool:
    """Fill the empty cells, trying numbers in a random order; return whether it could."""
    size, block = len(board), math.isqrt(len(board))
    empty = next(((r, c) for r in range(size) for c in range(size) if not board[r][c]), None)
    if empty is None:
        return True
    row, column = empty
    top, left = row // block * block, column // block * block
    taken = set(board[row]) | {line[column] for line in board}
    taken |= {board[top + i // block][left + i % block] for i in range(size)}
    numbers = [number for number in range(1, size + 1) if number not in taken]
    rng.shuffle(numbers)
    for number in numbers:
        board[row][column] = number
        if _fill(board, rng):
            return True
    board[row][column] = 0
    return False
