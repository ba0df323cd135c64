from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from trinity.common.experience import Experience
from trinity.trainer.microbatch import (
    model_inputs,
    pad_to_width,
    plan_microbatches,
    plan_packs,
)
from trinity.trainer.prefix_tree import PrefixSharing, one_pack_per_row, pack_rows, tree_mask

LENGTHS = st.lists(st.integers(1, 50), min_size=1, max_size=40)


def padded(plan, lengths):
    return [len(rows) * max(lengths[row] for row in rows) for rows in plan]


@given(lengths=LENGTHS, keep_order=st.booleans())
def test_each_row_is_in_exactly_one_micro_batch(lengths, keep_order):
    plan = plan_microbatches(
        [[n] for n in lengths], max_tokens=60, max_padding=20, keep_order=keep_order
    )

    assert sorted(row for rows in plan for row in rows) == list(range(len(lengths)))


@given(lengths=LENGTHS, keep_order=st.booleans())
def test_no_micro_batch_passes_the_budget_or_the_padding(lengths, keep_order):
    plan = plan_microbatches(
        [[n] for n in lengths], max_tokens=60, max_padding=20, keep_order=keep_order
    )

    for rows, size in zip(plan, padded(plan, lengths), strict=True):
        assert size <= 60
        assert size - sum(lengths[row] for row in rows) <= 20


@given(lengths=LENGTHS)
def test_rows_that_may_not_be_balanced_keep_their_order(lengths):
    plan = plan_microbatches([[n] for n in lengths], max_tokens=60, max_padding=20, keep_order=True)

    assert [row for rows in plan for row in rows] == list(range(len(lengths)))


def test_a_row_beyond_the_budget_stands_alone():
    assert plan_microbatches([[100], [3], [4]], max_tokens=10, max_padding=20) == [[0], [2, 1]]


def test_rows_of_one_length_fill_a_micro_batch_to_the_budget():
    plan = plan_microbatches([[5]] * 7, max_tokens=15, max_padding=0)

    assert plan == [[0, 1, 2], [3, 4, 5], [6]]


def sharing_by(way):
    return PrefixSharing(ways=frozenset({way}), token_cost=1e9)


def laid_out(rows, *, way=None):
    tokens = [row.tokens.numpy() for row in rows]
    return (
        pack_rows(tokens, sharing=sharing_by(way), max_tokens=99)
        if way
        else one_pack_per_row(tokens)
    )


def test_a_token_is_predicted_from_the_place_before_it():
    rows = [
        Experience(tokens=[10, 11, 12, 13], prompt_length=2, temperature=0.5),
        Experience(tokens=[20, 21, 22], prompt_length=1, temperature=0.0),
    ]
    mask = torch.tensor([[True, True], [False, True]])

    inputs = model_inputs(rows, mask, laid_out(rows))

    assert inputs.tokens_PL.tolist() == [[10, 11, 12, 13], [20, 21, 22, 0]]
    assert inputs.ends_PL is None  # each row for itself: the model's own causal mask does
    assert inputs.positions_PL is None
    assert inputs.targets_N.tolist() == [12, 13, 22]
    assert inputs.slots_N.tolist() == [1, 2, 5]
    assert inputs.temperature_N.tolist() == [0.5, 0.5, 1.0]  # greedy rows report temperature 1
    assert pad_to_width(torch.tensor([1.0, 2.0, 3.0]), inputs).tolist() == [[1, 2], [0, 3]]


def test_rows_of_one_prompt_are_predicted_from_one_computation_of_it():
    rows = [
        Experience(tokens=[10, 11, 12, 13], prompt_length=2),
        Experience(tokens=[10, 11, 14], prompt_length=2),
    ]
    mask = torch.tensor([[True, True], [True, False]])

    inputs = model_inputs(rows, mask, laid_out(rows, way="mask"))

    assert inputs.tokens_PL.tolist() == [[10, 11, 12, 13, 14]]
    assert inputs.positions_PL.tolist() == [[0, 1, 2, 3, 2]]
    assert tree_mask(inputs.ends_PL)[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],  # 14 sees the prompt, and nothing of the other answer
    ]
    assert inputs.slots_N.tolist() == [1, 2, 1]  # 12 and 14 from 11, 13 from 12
    assert inputs.targets_N.tolist() == [12, 13, 14]
    assert inputs.temperature_N is None  # 1 everywhere


def test_branches_of_a_stem_are_rows_that_go_on_from_it():
    rows = [
        Experience(tokens=[10, 11, 15], prompt_length=2),
        Experience(tokens=[10, 11, 12, 13], prompt_length=2),
        Experience(tokens=[10, 11, 12, 13, 14], prompt_length=4),
    ]
    mask = torch.tensor([[True, False], [True, True], [True, False]])

    inputs = model_inputs(rows, mask, laid_out(rows, way="cache"))

    assert inputs.tokens_PL.tolist() == [[10, 11]]
    assert inputs.suffixes_GK.tolist() == [[12, 13, 14], [15, 0, 0]]
    assert inputs.targets_N.tolist() == [15, 12, 13, 14]
    assert inputs.slots_N.tolist() == [1, 1, 2, 3]  # the stem's two, then the first branch


def test_a_padded_slot_sees_itself_so_that_no_softmax_is_over_nothing():
    tokens = [np.array([1, 2]), np.array([1, 3]), np.array([5])]
    rows = [Experience(tokens=row, prompt_length=1) for row in tokens]
    packs = laid_out(rows, way="mask")

    inputs = model_inputs(rows, torch.tensor([[True], [True], [False]]), packs)

    assert tree_mask(inputs.ends_PL)[1, 0].int().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def tokens_of_parts(rows, **settings):
    settings = {"max_tokens": 100, "max_padding": 0, "dp_size": 2, "is_balanced": True} | settings
    plan = plan_packs([np.array(row) for row in rows], **settings)

    assert sorted(row for packs in plan for pack in packs for row in pack.rows) == list(
        range(len(rows))
    )
    return [sum(len(pack) for packs in part for pack in packs) for part in plan.per_rank]


def test_two_ranks_get_as_many_tokens() -> None:
    """8, then 7 to the other; 6 to it, as it has less; 5 and 2 to the first: 15 against 13."""
    rows = [[number] * length for number, length in enumerate((2, 6, 8, 5, 7))]

    assert tokens_of_parts(rows) == [15, 13]
    assert tokens_of_parts(rows, is_balanced=False, max_tokens=8) == [8 + 6 + 2, 7 + 5]


def test_what_rows_share_is_dealt_as_it_is_computed() -> None:
    """Three answers of 4 to a prompt of 10 are 22 tokens, as many as rows of 12 and 10."""
    prompt = list(range(100, 110))
    rows = [prompt + [number] * 4 for number in range(3)] + [[50] * 12, [51] * 10]

    assert tokens_of_parts(rows, sharing=sharing_by("mask")) == [22, 22]


def test_a_tree_that_one_rank_would_have_alone_is_cut_where_both_are_done_sooner() -> None:
    """One tree is 20 + 4 x 10 = 60 tokens; two of them are 20 + 2 x 10 = 40 each."""
    rows = [[9] * 20 + [number] * 10 for number in range(4)]

    assert tokens_of_parts(rows, sharing=sharing_by("mask")) == [40, 40]
    assert tokens_of_parts(rows, sharing=sharing_by("mask"), is_balanced=False) == [60, 0]


def test_rows_that_may_not_be_balanced_are_dealt_in_turn() -> None:
    rows = [[number] * length for number, length in enumerate((9, 1, 9, 1))]

    assert tokens_of_parts(rows, keep_order=True, max_tokens=9) == [18, 2]
