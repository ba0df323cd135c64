"""The Sudoku's rules and what its steps are worth."""

from __future__ import annotations

import pytest
from trinity.errors import BadTaskError
from trinity_compat_rft.workflows.sudoku import SudokuWorkflow
from trinity_compat_rft.workflows.sudoku_board import is_valid, new_puzzle
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

PUZZLE = [[1, 2, 3, 4], [3, 4, 0, 2], [2, 1, 4, 3], [4, 3, 0, 0]]


def rewards(*answers, row=None) -> list[float]:
    task = a_task(raw_task=row or {"puzzle": [line[:] for line in PUZZLE]})
    workflow = SudokuWorkflow(task=task, model=model_over(ScriptedEngine(*answers)))
    return [experience.reward for experience in workflow.run()]


def test_steps_that_keep_the_rules_are_worth_0_and_the_last_one_1() -> None:
    assert rewards("1 2 1", "3 2 2\n\n3 3 1") == [0.0, 1.0]


@pytest.mark.parametrize(
    "answer",
    [
        "1 2 2",  # the row has a 2
        "3 2 1\n3 3 1",  # twice in a row
        "0 0 1",  # not empty
        "1 2 5",  # no such number
        "4 0 1",  # no such row
        "1 2",
        "I put 1 there.",
        "",
        "\n".join(["1 2 1"] * 6),  # more moves than a step has
        "1 2 " + "9" * 5000,
    ],
)
def test_a_step_against_the_rules_ends_the_run_with_less_1(answer) -> None:
    assert rewards(answer) == [-1.0]


def test_a_run_ends_after_twenty_steps() -> None:
    empty = {"puzzle": [[0] * 9 for _ in range(9)]}
    _, solution = new_puzzle(seed=0)
    moves = [f"{r} {c} {n}" for r, line in enumerate(solution) for c, n in enumerate(line)]

    assert rewards(*moves, row=empty) == [0.0] * 20


@pytest.mark.parametrize(
    ("row", "column"), [(0, 3), (3, 0), (1, 1)], ids=["row", "column", "block"]
)
def test_a_number_twice_in_a_row_column_or_block_is_invalid(row, column) -> None:
    board = [[0] * 4 for _ in range(4)]
    board[0][0] = board[row][column] = 2

    assert not is_valid(board)
    board[row][column] = 3
    assert is_valid(board)


@pytest.mark.parametrize("size", [4, 9])
def test_a_drawn_puzzle_is_half_of_a_valid_solution_and_follows_its_seed(size) -> None:
    puzzle, solution = new_puzzle(seed=1, size=size)

    assert is_valid(solution)
    assert all(all(line) for line in solution)
    filled = [(r, c) for r in range(size) for c in range(size) if puzzle[r][c]]
    assert len(filled) == size * size - size * size // 2
    assert all(puzzle[r][c] == solution[r][c] for r, c in filled)
    assert new_puzzle(seed=1, size=size) == (puzzle, solution)
    assert new_puzzle(seed=2, size=size)[1] != solution


@pytest.mark.parametrize("puzzle", [[], [[1, 1], [0, 0]], [[0] * 4] * 3, [[9] + [0] * 3] * 4])
def test_what_is_no_sudoku_is_a_bad_row(puzzle) -> None:
    with pytest.raises(BadTaskError, match="is no Sudoku"):
        rewards("0 0 1", row={"puzzle": puzzle})
