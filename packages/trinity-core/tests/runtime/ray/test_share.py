"""GPUs are divided so that every room of a stage can be placed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trinity.errors import ConfigError
from trinity.runtime.ray.share import shares_of


def test_a_machine_without_gpus_is_asked_for_none() -> None:
    shares = shares_of(0, trains=True, num_engines=3)

    assert (shares.trainer, shares.engine) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("num_gpus", "num_engines", "trainer", "engine"),
    [(1, 1, 0.5, 0.5), (2, 1, 1.0, 1.0), (4, 3, 1.0, 1.0), (2, 3, 1.0, 0.33), (3, 4, 1.0, 0.5)],
)
def test_rooms_get_whole_gpus_or_share_one(num_gpus, num_engines, trainer, engine) -> None:
    shares = shares_of(num_gpus, trains=True, num_engines=num_engines)

    assert (shares.trainer, shares.engine) == (trainer, engine)


def test_an_engine_of_several_gpus_has_them_to_itself() -> None:
    shares = shares_of(9, trains=True, num_engines=2, gpus_of_engine=4)

    assert (shares.trainer, shares.engine) == (1.0, 4.0)


def test_two_engines_of_four_gpus_beyond_the_gpus_there_are_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 engines of 4 GPUs beside a trainer, 9 GPUs in all"):
        shares_of(8, trains=True, num_engines=2, gpus_of_engine=4)


@given(st.integers(1, 8), st.booleans(), st.integers(0, 8))
def test_all_rooms_fit_onto_the_gpus(num_gpus, trains, num_engines) -> None:
    shares = shares_of(num_gpus, trains=trains, num_engines=num_engines)

    free = [1.0] * num_gpus
    for share in [shares.trainer] * trains + [shares.engine] * num_engines:
        place = next(number for number, left in enumerate(free) if left >= share - 1e-9)
        free[place] -= share
