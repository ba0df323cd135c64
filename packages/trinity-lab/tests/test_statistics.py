"""Tests, intervals and sample sizes, worked out by hand."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from trinity_lab.statistics import (
    interval_of,
    p_of_labels,
    p_of_signs,
    resampled_means,
    seeds_needed,
    smallest_p,
)


def test_the_four_runs_of_a_newcomer_would_need_about_48_seeds_an_arm() -> None:
    # s^2 = (0.0195^2 * 2 + 0.061^2 * 2) / 2 = 0.0041012, d = 0.0365, z = 1.9600 + 0.8416
    # 2 * 7.8489 * 0.0041012 / 0.00133225 = 48.3
    needed = seeds_needed([0.367, 0.328], [0.250, 0.372])

    assert needed is not None
    assert needed.count == pytest.approx(48.3, abs=0.05)
    # chi2 with 2 degrees of freedom: quantiles -2 ln(0.025) = 7.378 and -2 ln(0.975) = 0.0506
    assert needed.range.low == pytest.approx(48.3 * 2 / 7.378, rel=0.02)
    assert needed.range.high == pytest.approx(48.3 * 2 / 0.0506, rel=0.05)


def test_one_seed_has_no_spread_and_equal_means_need_no_number_of_seeds() -> None:
    assert seeds_needed([0.3], [0.1, 0.2]) is None
    equal = seeds_needed([0.1, 0.3], [0.2, 0.2])
    assert equal is not None
    assert equal.count == np.inf


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        ([0.367, 0.328], [0.250, 0.372], 1.0),  # no other two pairs differ by less
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 / 252),
        ([1.0], [2.0], 1.0),
        ([1, 1], [1, 1], 1.0),
    ],
)
def test_labels_of_runs_are_permuted(a: list[float], b: list[float], p: float) -> None:
    assert p_of_labels(a, b) == pytest.approx(p)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e9])
def test_a_p_does_not_depend_on_the_unit_of_the_values(scale) -> None:
    source = np.random.default_rng(0)
    for a in source.uniform(1.0, 1.4, (200, 8)):
        of_labels, of_signs = p_of_labels(a[:4], a[4:]), p_of_differences(a - 1.2)

        assert p_of_labels(a[:4] * scale, a[4:] * scale) == of_labels >= smallest_p(4, 4)
        assert p_of_differences((a - 1.2) * scale) == of_signs


@pytest.mark.parametrize("offset", [0, 10**4, 10**9])
@pytest.mark.parametrize("size", [1, 3, 4, 6])
def test_a_p_is_that_of_exact_arithmetic(offset, size) -> None:
    """Of values with one decimal, many of whose differences are equal."""
    source = np.random.default_rng(size)
    for tenths in source.integers(1, 30, (20, 8)).tolist():
        values = [offset + one / 10 for one in tenths]

        assert p_of_labels(values[:size], values[size:]) == exact_p_of_labels(tenths, size)
        tenths[0] += 10 * offset
        assert p_of_differences([one / 10 for one in tenths]) == exact_p_of_signs(tenths)


def p_of_differences(values) -> float:
    return p_of_signs([np.zeros(len(values))], [np.array(values)])


@pytest.mark.parametrize("offset", [0, 100, 1000, 10**9])
@pytest.mark.parametrize("num_runs", [1, 3])
def test_a_p_of_paired_tasks_is_that_of_exact_arithmetic(offset, num_runs) -> None:
    """Of values with one decimal, whose differences are off by the rounding of the values."""
    source = np.random.default_rng(num_runs)
    for tenths_NST in source.integers(1, 30, (50, 2, num_runs, 6)):
        a_ST, b_ST = offset + tenths_NST / 10
        a_T, b_T = tenths_NST.sum(axis=1)

        assert p_of_signs(a_ST, b_ST) == exact_p_of_signs((b_T - a_T).tolist())


def exact_p_of_labels(values: list[int], size: int) -> float:
    total, rest = sum(values), len(values) - size
    found = [
        abs(rest * sum(some) - size * (total - sum(some))) for some in combinations(values, size)
    ]
    return sum(one >= found[0] for one in found) / len(found)


def exact_p_of_signs(values: list[int]) -> float:
    signs = product((1, -1), repeat=len(values))
    found = [abs(sum(a * b for a, b in zip(values, some, strict=True))) for some in signs]
    return sum(one >= found[0] for one in found) / len(found)


def test_one_large_value_does_not_hide_the_others() -> None:
    assert p_of_differences([1e9, 0.1, 0.1, 0.1]) == 2 / 16
    times = [1.7e9 + n / 10 for n in range(4)]
    assert p_of_labels(times, [one + 1 for one in times]) == 2 / 70


def test_many_runs_are_permuted_at_random() -> None:
    a = [float(n % 7) for n in range(30)]

    assert p_of_labels(a, [value + 3 for value in a]) < 0.001
    assert p_of_labels(a, a[::-1]) > 0.9


@pytest.mark.parametrize(
    ("differences", "p"),
    [([1, 1, 1, 1], 2 / 16), ([1, -1], 1.0), ([3, 1, 1], 2 / 8), ([2, -1, 1], 6 / 8)],
)
def test_signs_of_paired_differences_are_permuted(differences: list[float], p: float) -> None:
    assert p_of_differences(differences) == pytest.approx(p)


def test_fewer_than_four_seeds_an_arm_cannot_show_a_difference() -> None:
    assert [round(smallest_p(n, n), 3) for n in (1, 2, 3, 4, 5)] == [1.0, 0.333, 0.1, 0.029, 0.008]


def test_a_bootstrap_over_seeds_and_tasks_has_the_spread_of_both() -> None:
    # the variance of a mean of two seeds drawn from {0, 1} is 0.25 / 2
    seeds = resampled_means([np.array([0.0]), np.array([1.0])])
    assert seeds.var() == pytest.approx(0.125, rel=0.05)
    assert interval_of(seeds).low == 0.0
    assert interval_of(seeds).high == 1.0

    # four tasks 0 0 1 1, alike in each seed: 0.25 / 4
    tasks = resampled_means([np.array([0.0, 0.0, 1.0, 1.0])] * 2)
    assert tasks.var() == pytest.approx(0.0625, rel=0.05)
    assert tasks.mean() == pytest.approx(0.5, abs=0.01)


def test_a_run_that_lacks_tasks_is_resampled_over_its_own() -> None:
    nan = np.nan
    ragged = resampled_means([np.array([0.2, 0.6, nan, nan]), np.array([nan, nan, 0.2, 0.6])])
    whole = resampled_means([np.array([0.2, 0.6, 0.2, 0.6])] * 2)

    assert np.isfinite(ragged).all()
    assert ragged.mean() == pytest.approx(0.4, abs=0.01)
    assert ragged.var() > whole.var()
