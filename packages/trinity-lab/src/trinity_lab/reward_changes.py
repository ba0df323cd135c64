"""How two rewards of the same rollouts differ: their means, orders within groups, advantages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EQUAL = 1e-9
ORDERS = ("kept", "turned", "tied", "untied")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One rollout under both rewards.

    Attributes:
        rollout: ``batch/task/run``.
        group: ``batch/task``.
        before: the run's reward, after: the other one.
    """

    rollout: str
    group: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class Change:
    """The rollout of a group whose place changed most; places count from 1, the best."""

    rollout: str
    before: float
    after: float
    places: tuple[float, float]
    size: int


@dataclass(frozen=True, kw_only=True)
class RewardChanges:
    """What another reward changes.

    Attributes:
        num_rollouts: that have both rewards.
        num_groups: of them.
        mean: of the rewards, before and after.
        spread: mean deviation within a group, before and after.
        num_dead: groups of equal rewards, before and after.
        orders: of all pairs of a group: ``kept`` in order, ``turned`` around, ``tied`` where they
            differed before, ``untied`` where they were equal.
        largest: changes of place, the largest first.
    """

    num_rollouts: int
    num_groups: int
    mean: tuple[float, float]
    spread: tuple[float, float]
    num_dead: tuple[int, int]
    orders: Mapping[str, int]
    largest: Sequence[Change]


def reward_changes(pairs: Sequence[Pair], *, num_largest: int = 5) -> RewardChanges:
    """Return what changes.

    >>> pairs = [Pair(rollout="1/0/0", group="1/0", before=1.0, after=0.0),
    ...          Pair(rollout="1/0/1", group="1/0", before=0.0, after=1.0)]
    >>> reward_changes(pairs).orders["turned"]
    1
    """
    groups: dict[str, list[Pair]] = {}
    for one in pairs:
        groups.setdefault(one.group, []).append(one)
    orders = Counter(dict.fromkeys(ORDERS, 0))
    for group in groups.values():
        orders.update(_order(a, b) for a, b in combinations(group, 2))
    changes = [change for group in groups.values() for change in _changes(group)]
    moved = sorted(changes, key=lambda one: -abs(one.places[0] - one.places[1]))
    spreads = [_spreads(group) for group in groups.values()]
    return RewardChanges(
        num_rollouts=len(pairs),
        num_groups=len(groups),
        mean=(fmean(one.before for one in pairs), fmean(one.after for one in pairs)),
        spread=(fmean(one for one, _ in spreads), fmean(one for _, one in spreads)),
        num_dead=(
            sum(one < _EQUAL for one, _ in spreads),
            sum(one < _EQUAL for _, one in spreads),
        ),
        orders=dict(orders),
        largest=[one for one in moved[:num_largest] if one.places[0] != one.places[1]],
    )


def sign_changes(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[int, int]:
    """Return how many advantages change their sign, and how many are compared.

    >>> sign_changes({"a": 1.0, "b": -1.0}, {"a": -0.5, "b": 0.0})
    (1, 2)
    """
    common = before.keys() & after.keys()
    return sum(before[one] * after[one] < 0 for one in common), len(common)


def _order(one: Pair, other: Pair) -> str:
    before, after = one.before - other.before, one.after - other.after
    was_tied, is_tied = abs(before) < _EQUAL, abs(after) < _EQUAL
    if was_tied or is_tied:
        return "kept" if was_tied and is_tied else "tied" if is_tied else "untied"
    return "kept" if before * after > 0 else "turned"


def _changes(group: Sequence[Pair]) -> list[Change]:
    befores, afters = [one.before for one in group], [one.after for one in group]
    return [
        Change(
            rollout=one.rollout,
            before=one.before,
            after=one.after,
            places=(_place(one.before, befores), _place(one.after, afters)),
            size=len(group),
        )
        for one in group
    ]


def _place(value: float, values: Sequence[float]) -> float:
    """Return the place of a value, 1 for the highest; equal ones share the mean of theirs.

    >>> [_place(one, [3.0, 1.0, 3.0]) for one in (3.0, 1.0)]
    [1.5, 3.0]
    """
    higher = sum(other > value + _EQUAL for other in values)
    equal = sum(abs(other - value) <= _EQUAL for other in values)
    return higher + (equal + 1) / 2


def _spreads(group: Sequence[Pair]) -> tuple[float, float]:
    return pstdev(one.before for one in group), pstdev(one.after for one in group)
