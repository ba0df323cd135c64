from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trinity.trainer.prefix_tree import PrefixSharing, one_pack_per_row, pack_rows, rows_of

MASK = frozenset({"mask"})
ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=20)


def arrays(rows):
    return [np.array(row, dtype=np.int64) for row in rows]


@given(rows=ROWS, cost=st.sampled_from([0.5, 5.0, 1e9]), budget=st.integers(1, 40))
def test_a_token_sees_exactly_the_tokens_before_it_in_its_row(rows, cost, budget):
    packs = pack_rows(
        arrays(rows), sharing=PrefixSharing(ways=MASK, token_cost=cost), max_tokens=budget
    )

    assert sorted(rows_of(packs)) == list(range(len(rows)))
    for pack in packs:
        assert len(pack) <= budget or len(pack.rows) == 1
        slots = np.arange(len(pack))
        sees = (slots[:, None] >= slots) & (slots[:, None] < pack.ends_T)
        for row, path in zip(pack.rows, pack.paths, strict=True):
            assert pack.tokens_T[path].tolist() == rows[row]
            for place, slot in enumerate(path):
                assert np.flatnonzero(sees[slot]).tolist() == path[: place + 1].tolist()
                assert pack.positions_T[slot] == place


def test_rows_without_a_common_beginning_stay_apart():
    packs = pack_rows(
        arrays([[1, 2], [3, 2], [4]]),
        sharing=PrefixSharing(ways=MASK, token_cost=1e9),
        max_tokens=99,
    )

    assert [pack.rows for pack in packs] == [(0,), (1,), (2,)]
    assert all(pack.is_chain for pack in packs)


def test_equal_rows_are_one_chain_and_need_no_mask():
    (pack,) = pack_rows(
        arrays([[1, 2, 3], [1, 2, 3], [1, 2]]),
        sharing=PrefixSharing(ways=MASK, token_cost=1e9),
        max_tokens=99,
    )

    assert pack.tokens_T.tolist() == [1, 2, 3]
    assert pack.is_chain


@pytest.mark.parametrize(("token_cost", "num_packs"), [(1, 2), (2, 1)])
def test_a_row_joins_where_what_it_spares_costs_more_than_the_pairs(token_cost, num_packs):
    # 4 tokens spared, against 6 * 6 - 5 * 5 - 5 * 5 < 0 pairs more; then 7 * 7 - 6 * 6 - 5 * 5 < 0,
    # 8 * 8 - 7 * 7 - 5 * 5 < 0, 9 * 9 - 8 * 8 - 5 * 5 < 0, and 10 * 10 - 9 * 9 - 5 * 5 < 0;
    # of 16 answers the one to come costs 20 * 20 - 19 * 19 - 5 * 5 = 14 at the most
    rows = arrays([[1, 2, 3, 4, 10 + answer] for answer in range(16)])
    assert (
        len(pack_rows(rows, sharing=PrefixSharing(ways=MASK, token_cost=14 / 4), max_tokens=99))
        == 1
    )

    # 6 * 6 - 4 * 4 - 4 * 4 = 4 pairs for 2 tokens, 2 each
    two = arrays([[1, 2, 3, 4], [1, 2, 6, 7]])
    assert (
        len(pack_rows(two, sharing=PrefixSharing(ways=MASK, token_cost=token_cost), max_tokens=99))
        == num_packs
    )


def test_rows_apart_are_packs_of_one():
    packs = one_pack_per_row(arrays([[1, 2], [1, 2]]))

    assert [(pack.rows, pack.tokens_T.tolist()) for pack in packs] == [
        ((0,), [1, 2]),
        ((1,), [1, 2]),
    ]
