"""Deal the micro-batches of a batch to the processes that share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.trainer.layout import Pack


class Plan(list["Sequence[Pack]"]):
    """The micro-batches of a batch, and whose each is.

    Args:
        parts: of each team of processes, its micro-batches in their order.
    """

    def __init__(self, parts: Iterable[Sequence[Sequence[Pack]]]) -> None:
        self.parts = tuple(parts)
        super().__init__(packs for part in self.parts for packs in part)

    @classmethod
    def in_turn(cls, micro_batches: Sequence[Sequence[Pack]], *, num_teams: int) -> Plan:
        """Return a plan in which team i has the micro-batches i, i + n, ..."""
        return cls(micro_batches[team::num_teams] for team in range(num_teams))

    @property
    def num_tokens(self) -> int:
        """Return how many tokens are computed; what rows share counts once."""
        return sum(len(pack) for packs in self for pack in packs)

    @property
    def largest_part(self) -> int:
        """Return the tokens of the team that has most of them."""
        return max(sum(len(pack) for packs in part for pack in packs) for part in self.parts)


def dealt(sizes: Sequence[int], *, num_teams: int) -> list[list[int]]:
    """Return the numbers of what each team gets, ascending: the largest first, to who has least.

    >>> dealt([5, 30, 10, 20, 25, 4], num_teams=2)
    [[0, 1, 2, 5], [3, 4]]
    """
    hands: list[list[int]] = [[] for _ in range(num_teams)]
    loads = [0] * num_teams
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        team = loads.index(min(loads))
        hands[team].append(number)
        loads[team] += sizes[number]
    return [sorted(hand) for hand in hands]
