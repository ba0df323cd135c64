"""What an advantage function or a sample strategy gives back is refused where rows would suffer."""

from __future__ import annotations

import copy

import pytest
import torch
from trinity.algorithm.advantage_fn import AdvantageFn, apply_advantage
from trinity.algorithm.sample_strategy import SampleStrategy
from trinity.algorithm.sample_strategy.strategies import CheckedStrategy
from trinity.errors import PluginError
from trinity_testing.builders import a_batch, an_experience


class Plain(AdvantageFn):
    """Takes the reward for the advantage, and hands the batch to what a test does with it."""

    def __init__(self, change=lambda exps: exps):
        self.change = change

    def __call__(self, exps, **kwargs):
        exps["advantages"] = exps["rewards"][:, None] * exps["action_mask"]
        return self.change(exps), {}


def drops(exps):
    return exps.select([0, 2])


def repeats(exps):
    return exps.select([0, 1, 1])


def adds(exps):
    exps.experiences[1] = copy.deepcopy(exps.experiences[1])
    return exps


def swaps_rows(exps):
    exps.experiences.reverse()
    return exps


def divides_by_zero(exps):
    exps["advantages"][1] /= 0.0
    return exps


def is_a_column(exps):
    exps["advantages"] = exps["rewards"]
    return exps


def counts(exps):
    exps["advantages"] = exps["advantages"].long()
    return exps


def forgets(exps):
    del exps.batch["advantages"]
    return exps


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (drops, "left out 1 of the 3 rows that it was given (0/0/1/0), which nobody would train"),
        (repeats, "returned the row 0/0/1/0 twice"),
        (adds, "returned 1 rows that it was not given (0/0/1/0)"),
        (swaps_rows, "returned the fields of run 0/0/0 in the place of experience 0/0/2/0"),
        (divides_by_zero, "made advantages that are NaN or infinite, in 1 rows (0/0/1/0)"),
        (is_a_column, "made advantages of the shape [3], not [3, 4]"),
        (counts, "made advantages of the type torch.int64"),
        (forgets, "returned a batch without the field 'advantages'"),
        (lambda exps: None, "returned"),
    ],
)
def test_an_advantage_function_that_spoils_rows_stops_the_run_by_its_name(change, what):
    with pytest.raises(PluginError) as caught:
        apply_advantage(Plain(change), a_batch([[1.0, 2.0, 3.0]]))

    assert what in str(caught.value)
    assert "Plain (your class" in str(caught.value)


def test_rows_may_be_left_out_where_the_class_says_so():
    class Filters(Plain):
        changes_rows = True

    batch, _ = apply_advantage(Filters(drops), a_batch([[1.0, 2.0, 3.0]]))

    assert batch["rewards"].tolist() == [1.0, 3.0]


def test_rows_may_come_in_another_order_with_their_fields():
    batch, _ = apply_advantage(Plain(lambda e: e.select([2, 0, 1])), a_batch([[1.0, 2.0, 3.0]]))

    assert batch["advantages"][:, 0].tolist() == [3.0, 1.0, 2.0]


def test_advantages_of_masked_tokens_may_be_anything():
    def spoils_the_mask(exps):
        exps["advantages"] = exps["advantages"].masked_fill(~exps["action_mask"], torch.nan)
        return exps

    batch, _ = apply_advantage(Plain(spoils_the_mask), a_batch([[1.0, 2.0, 3.0]]))

    assert batch["advantages"][0, 0] == 1.0


class Gives(SampleStrategy):
    """Gives what a test wants."""

    def __init__(self, returned):
        self.returned = returned

    def sample(self, step):
        return self.returned


ROW = an_experience()


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (([ROW, ROW], {}), "the experience 0/0/0/0 twice in the batch of step 7"),
        (([ROW, "text"], {}), "a str"),
        ([ROW], "a list. Return two things"),
        (None, "None. Return two things"),
    ],
)
def test_a_strategy_that_gives_no_batch_or_a_row_twice_stops_the_run_by_its_name(returned, what):
    with pytest.raises(PluginError, match="sample strategy Gives") as caught:
        CheckedStrategy(Gives(returned)).sample(7)

    assert what in str(caught.value)


def test_a_batch_goes_through_as_it_is():
    other = an_experience()

    assert CheckedStrategy(Gives(([ROW, other], {"a": 1.0}))).sample(1) == (
        [ROW, other],
        {"a": 1.0},
    )
