from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from trinity.common.experience import Experience
from trinity.trainer.microbatch import model_inputs, pad_to_width, plan_microbatches

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=40)


def padded(plan, lengths):
    return [len(rows) * max(lengths[row] for row in rows) for rows in plan]


@given(lengths=LENGTHS, keep_order=st.booleans())
def test_each_row_is_in_exactly_one_micro_batch(lengths, keep_order):
    plan = plan_microbatches(lengths, max_tokens=60, max_padding=20, keep_order=keep_order)

    assert sorted(row for rows in plan for row in rows) == list(range(len(lengths)))


@given(lengths=LENGTHS, keep_order=st.booleans())
def test_no_micro_batch_passes_the_budget_or_the_padding(lengths, keep_order):
    plan = plan_microbatches(lengths, max_tokens=60, max_padding=20, keep_order=keep_order)

    for rows, size in zip(plan, padded(plan, lengths), strict=True):
        assert size <= 60
        assert size - sum(lengths[row] for row in rows) <= 20


@given(lengths=LENGTHS)
def test_rows_that_may_not_be_balanced_keep_their_order(lengths):
    plan = plan_microbatches(lengths, max_tokens=60, max_padding=20, keep_order=True)

    assert [row for rows in plan for row in rows] == list(range(len(lengths)))


def test_a_row_beyond_the_budget_stands_alone():
    assert plan_microbatches([100, 3, 4], max_tokens=10, max_padding=20) == [[0], [2, 1]]


def test_rows_of_one_length_fill_a_micro_batch_to_the_budget():
    plan = plan_microbatches([5] * 7, max_tokens=15, max_padding=0)

    assert plan == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_token_is_predicted_from_the_place_before_it():
    rows = [
        Experience(tokens=[10, 11, 12, 13], prompt_length=2, temperature=0.5),
        Experience(tokens=[20, 21, 22], prompt_length=1, temperature=0.0),
    ]
    mask = torch.tensor([[True, True], [False, True]])

    inputs = model_inputs(rows, mask)

    assert inputs.tokens_BL.tolist() == [[10, 11, 12, 13], [20, 21, 22, 0]]
    assert inputs.targets_N.tolist() == [12, 13, 22]
    assert inputs.positions_N.tolist() == [1, 2, 1]
    assert inputs.temperature_N.tolist() == [0.5, 0.5, 1.0]  # greedy rows report temperature 1
    assert pad_to_width(torch.tensor([1.0, 2.0, 3.0]), inputs).tolist() == [[1, 2], [0, 3]]
