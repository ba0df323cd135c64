"""Fill a Sudoku in steps of a few moves, each step an experience."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import Workflow
from trinity.errors import BadTaskError

from trinity_compat_rft.workflows.sudoku_board import Board, is_valid, new_puzzle

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

__all__ = ["SudokuWorkflow"]

MAX_STEPS = 20
MAX_MOVES = 5  # of a step


class SudokuWorkflow(Workflow):
    """1 for the step that fills the board, -1 for one against the rules, else 0.

    The row's columns: ``puzzle`` and ``solution``, lists of rows in which 0 is empty. Without them
    a puzzle is drawn, from the column ``seed`` or else the number of the row. Any board that is
    full and keeps the rules counts as solved. A step against the rules ends the run.
    """

    can_reset = True
    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"puzzle": [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 0, 0]]},
        "other_raw_task": {"seed": 3},
        "answers": ["3 2 2", "3 3 1"],
    }

    def run(self) -> list[Experience]:
        """Return one experience for each step."""
        board = self._puzzle()
        experiences: list[Experience] = []
        for step in range(MAX_STEPS):
            asked = [{"role": "user", "content": _prompt(board, step)}]
            response = self.model.chat(asked, n=1)[0]
            moves = _moves(response.response_text or "", size=len(board))
            response.reward = _played(board, moves)
            response.eid.step = step
            response.eid.run = self.run_id_base
            experiences.append(response)
            if response.reward:
                break
        return experiences

    def _puzzle(self) -> Board:
        given = self.task.raw_task.get("puzzle")
        if given is None:
            number = self.task.index.get("index", 0)
            return new_puzzle(seed=int(self.task.raw_task.get("seed", number)))[0]
        board = [list(map(int, line)) for line in given]
        size = len(board)
        is_square = math.isqrt(size) ** 2 == size and all(len(line) == size for line in board)
        is_filled = all(0 <= number <= size for line in board for number in line)
        if not size or not is_square or not is_filled or not is_valid(board):
            raise BadTaskError(
                f"{self.task.origin}: 'puzzle' is no Sudoku. Give as many rows as numbers, 4 or 9 "
                f"or 16, with 0 where a cell is empty and no number twice."
            )
        return board

    def reset(self, task: Task) -> None:
        """Take another puzzle."""
        self.task = task


def _prompt(board: Board, step: int) -> str:
    size, block = len(board), math.isqrt(len(board))
    shown = "\n".join(" ".join(map(str, line)) for line in board)
    return (
        "You are playing a Sudoku game.\n\n"
        "Rules:\n"
        f"- The board is {size}x{size}; 0 is an empty cell.\n"
        f"- Each row, column and {block}x{block} block holds each of 1 to {size} exactly once.\n"
        "- Only empty cells may be filled.\n\n"
        f"Give one to {MAX_MOVES} moves, and nothing else. Rows and columns count from 0.\n\n"
        "Output format (STRICT):\n"
        "row col value\n"
        "row col value\n\n"
        "Example:\n"
        "0 2 4\n"
        "1 3 1\n\n"
        f"Current step: {step}\n"
        f"Remaining steps: {MAX_STEPS - step}\n\n"
        f"Current board:\n{shown}\n"
    )


def _moves(text: str, *, size: int) -> list[tuple[int, int, int]] | None:
    """Return ``(row, column, number)`` of each line; None: a line is none, or there are too many.

    >>> _moves("0 2 4", size=4), _moves("I put 4 there.", size=4)
    ([(0, 2, 4)], None)
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if not 0 < len(lines) <= MAX_MOVES:
        return None
    moves = []
    for parts in lines:
        if len(parts) != 3 or not all(
            part.isdecimal() and part.isascii() and len(part) < 4 for part in parts
        ):
            return None
        row, column, number = map(int, parts)
        if row >= size or column >= size or not 1 <= number <= size:
            return None
        moves.append((row, column, number))
    return moves


def _played(board: Board, moves: list[tuple[int, int, int]] | None) -> float:
    """Write the moves into the board and return the reward of the step."""
    if moves is None:
        return -1.0
    for row, column, number in moves:
        if board[row][column]:
            return -1.0
        board[row][column] = number
    if not is_valid(board):
        return -1.0
    return float(all(map(all, board)))
