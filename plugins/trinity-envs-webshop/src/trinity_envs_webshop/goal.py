"""Say what a customer wants: the goals of a catalogue, in the published order."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from trinity.errors import DataError

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from trinity_envs_webshop.catalogue import Catalogue
    from trinity_envs_webshop.product import Product

__all__ = ["NO_BOUND", "SHUFFLE_SEED", "Goal", "GoalFilter", "Goals", "checked_instructions"]

SHUFFLE_SEED = 233  # of the splits: the same in every process, whatever else is seeded
NO_BOUND = 1_000_000
_BOUNDS = [10.0 * step for step in range(1, 100)]


@dataclass(frozen=True, slots=True)
class Goal:
    """What to buy, and what the reward compares it with."""

    asin: str
    category: str
    query: str
    name: str
    product_category: str
    instruction_text: str
    attributes: list[str]
    price_upper: float
    goal_options: list[str] | dict[str, str]  # a list of people's, a dict of synthetic ones
    weight: float = 1


GoalFilter = Callable[[int, Goal], bool]


class Goals(Sequence[Goal]):
    """The goals after the shuffle, cut to what was asked for.

    Args:
        made: the goals in the order of the catalogue.
        rng: seeded here with 233; it shuffles, then draws for ``limit``.
        keep: which goals are left, by position and goal; None: all.
        limit: that many different ones, drawn by weight; None or -1: all.
    """

    def __init__(
        self,
        made: _MadeGoals,
        *,
        rng: random.Random,
        keep: GoalFilter | None = None,
        limit: int | None = None,
    ) -> None:
        self._made = made
        order = list(range(len(made)))
        rng.seed(SHUFFLE_SEED)
        rng.shuffle(order)
        if keep is not None:
            order = [made_at for i, made_at in enumerate(order) if keep(i, made[made_at])]
        self._set_order(order)
        if limit is not None and 0 <= limit < len(order):
            drawn: dict[int, None] = {}
            while len(drawn) < limit:
                drawn[self.draw(rng)] = None
            self._set_order([order[i] for i in drawn])

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._made[int(i)] for i in self._order[index]]
        return self._made[int(self._order[index])]

    def draw(self, rng: random.Random) -> int:
        """Return the position of a goal, drawn by weight."""
        if not len(self):
            raise DataError(
                "the catalogue has no goals of this kind. Set human_goals the other way, or take "
                "data with instructions."
            )
        position = rng.uniform(0, float(self._cumulated[-1]))
        place = bisect.bisect(self._cumulated, position)
        return min(place, len(self._cumulated) - 2)

    def _set_order(self, order: list[int]) -> None:
        self._order = np.array(order, np.int64)
        weights = self._made.weights()[self._order] if order else np.zeros(0)
        self._cumulated = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])


class HumanGoals:
    """The goals that people wrote, one for each instruction."""

    def __init__(self, catalogue: Catalogue, *, prices: np.ndarray, rng: random.Random) -> None:
        instructions = checked_instructions(catalogue.files.human_instructions)
        numbered = [
            (number, rows)
            for asin, rows in instructions.items()
            if (number := catalogue.number_of(asin)) is not None
        ]
        self._goals = [
            _human_goal(row, product=catalogue.product(number), bound=_bound(prices[number], rng))
            for number, rows in sorted(numbered, key=lambda pair: pair[0])
            for row in rows
            if row["instruction_attributes"]
        ]

    def __len__(self) -> int:
        return len(self._goals)

    def __getitem__(self, index: int) -> Goal:
        return self._goals[index]

    def weights(self) -> np.ndarray:
        """Return how often each is drawn, compared with the others."""
        return np.ones(len(self))


class SyntheticGoals:
    """A goal for every combination of the options of each product that has an instruction.

    A million products make millions of goals; each is put together when it is asked for.
    """

    def __init__(self, catalogue: Catalogue, *, prices: np.ndarray, rng: random.Random) -> None:
        if catalogue.facts["num_without_entry"]:
            raise DataError(
                f"{catalogue.files.attributes} says nothing about "
                f"{catalogue.facts['num_without_entry']} products, "
                f"{', '.join(catalogue.facts['without_entry'])} among them; synthetic goals need "
                f"all. Take the file that belongs to {catalogue.files.products.name}, or set "
                f"human_goals: true."
            )
        self._catalogue = catalogue
        self._products = catalogue.array("goal_product")
        counts = np.array(catalogue.array("goal_count"))
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        self._bounds = [_bound(prices[number], rng) for number in self._products.tolist()]
        self._weights = _attribute_weights(catalogue, counts)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> Goal:
        place = int(np.searchsorted(self._starts, index, side="right")) - 1
        product = self._catalogue.product(int(self._products[place]))
        options = _combination(product.options, index - int(self._starts[place]))
        wanted = ", and ".join(f"{name}: {value}" for name, value in options.items())
        bound = self._bounds[place]
        text = (product.instruction or "") + (f" with {wanted}" if wanted else "")
        return Goal(
            asin=product.asin,
            category=product.category,
            query=product.query,
            name=product.title,
            product_category=product.product_category,
            instruction_text=text + _bound_text(bound),
            attributes=product.instruction_attributes,
            price_upper=bound,
            goal_options=options,
            weight=float(self._weights[place]),
        )

    def weights(self) -> np.ndarray:
        """Return how often each is drawn, compared with the others."""
        return np.repeat(self._weights, np.diff(self._starts))


_MadeGoals = HumanGoals | SyntheticGoals


def checked_instructions(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what people asked for, by product.

    Raises:
        DataError: the file is not such a table.
    """
    try:
        instructions = json.loads(path.read_text(encoding="utf-8"))
        for asin, rows in instructions.items():
            for row in rows:
                if not isinstance(row["instruction"], str) or not all(
                    isinstance(row[name], list)
                    for name in ("instruction_attributes", "instruction_options")
                ):
                    raise TypeError(f"an instruction of {asin} has values of the wrong types")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path} cannot be read: {error!r}. Fetch it again.") from error
    return instructions  # type: ignore[no-any-return]


def _human_goal(row: dict[str, Any], *, product: Product, bound: float) -> Goal:
    return Goal(
        asin=product.asin,
        category=product.category,
        query=product.query,
        name=product.title,
        product_category=product.product_category,
        instruction_text=row["instruction"].strip(".") + _bound_text(bound),
        attributes=row["instruction_attributes"],
        price_upper=bound,
        goal_options=row["instruction_options"],
    )


def _bound(price: float, rng: random.Random) -> float:
    """Return the larger of two of the next four round prices, or that there is no bound."""
    above = [bound for bound in _BOUNDS if bound > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_BOUND


def _bound_text(bound: float) -> str:
    return "" if bound == NO_BOUND else f", and price lower than {bound:.2f} dollars"


def _combination(options: dict[str, list[str]], index: int) -> dict[str, str]:
    """Return one of all combinations, counted with the last name's values going round first."""
    chosen = {}
    for name in sorted(options, reverse=True):
        index, place = divmod(index, len(options[name]))
        chosen[name] = options[name][place]
    return {name: chosen[name] for name in sorted(options)}


def _attribute_weights(catalogue: Catalogue, counts: np.ndarray) -> np.ndarray:
    """Return the weight of each product's goals: the mean rarity of their attributes."""
    ends = catalogue.array("goal_attribute_ends")
    attributes = np.array(catalogue.array("goal_attributes"))
    num_goals = np.repeat(counts, np.diff(ends)).astype(np.float64)
    used = np.bincount(attributes, weights=num_goals).tolist()
    weights = np.zeros(len(counts))
    listed, bounds = attributes.tolist(), ends.tolist()
    for place, (start, end) in enumerate(pairwise(bounds)):
        total = 0.0
        for attribute in listed[start:end]:
            total += 1.0 / used[attribute] if used[attribute] else 0.0
        weights[place] = total / (end - start)
    return weights
