"""Score a purchase against the goal."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rapidfuzz import fuzz, utils
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trinity_envs_webshop.goal import Goal
    from trinity_envs_webshop.product import Product
    from trinity_envs_webshop.tagger import Tagger

__all__ = ["colour_of", "reward_of", "similarity"]

_ENOUGH = 85


def reward_of(
    product: Product, *, goal: Goal, price: float, options: Mapping[str, str], tagger: Tagger
) -> tuple[float, dict[str, Any]]:
    """Return the reward of buying the product, and its parts.

    Raises:
        DataError: the goal lists no attributes, or its price bound is not above 0.
    """
    if not goal.attributes or goal.price_upper <= 0:
        raise DataError(
            f"the goal {goal.instruction_text!r} cannot be scored: it needs an attribute and a "
            f"price bound above 0. Correct it in the data, or filter it out."
        )
    wanted_options: list[Any] = (
        list(goal.goal_options.items())
        if isinstance(goal.goal_options, dict)
        else list(goal.goal_options)
    )
    num_attributes, num_options = len(goal.attributes), len(wanted_options)
    attributes_met = sum(_has_attribute(product, wanted) for wanted in goal.attributes)
    options_met = _options_met(list(options.values()), wanted_options)
    is_cheap_enough = bool(price <= goal.price_upper)
    kind = _kind(product, goal=goal, tagger=tagger)
    num_parts = num_attributes + num_options + 1
    reward = (attributes_met + options_met + is_cheap_enough) / num_parts * kind["r_type"]
    parts = {
        "r_type": kind["r_type"],
        "r_att": attributes_met / num_attributes,
        "w_att": num_attributes / num_parts,
        "query_match": kind["query_match"],
        "category_match": kind["category_match"],
        "title_score": kind["title_score"],
    }
    if num_options:
        parts |= {"r_option": options_met / num_options, "w_option": num_options / num_parts}
    return reward, parts | {"r_price": is_cheap_enough, "w_price": 1 / num_parts}


def similarity(one: object, other: object) -> int:
    """Return how alike two texts are, 0 to 100, whatever the order of their words.

    >>> similarity("Machine wash", "wash, machine!"), similarity("red", "blue")
    (100, 29)
    """
    return int(round(fuzz.token_set_ratio(_plain(str(one)), _plain(str(other)))))  # noqa: RUF046


def colour_of(option: Any) -> Any:
    """Return the first known colour that occurs anywhere in the option, or else the option.

    >>> colour_of("tangerine dream"), colour_of(("color", "dark red")), colour_of("xx-large")
    ('tan', ('color', 'dark red'), 'xx-large')
    """
    return next((colour for colour in _colours() if colour in option), option)


def _has_attribute(product: Product, wanted: str) -> bool:
    if any(similarity(has, wanted) > _ENOUGH for has in product.attributes):
        return True
    return (
        wanted in product.title.lower()
        or wanted in " ".join(product.bullet_points).lower()
        or wanted in product.description.lower()
    )


def _options_met(chosen: Iterable[str], wanted: Iterable[Any]) -> int:
    """Return how many wanted options a chosen one is like, colours by their plain names."""
    plain = [colour_of(option) for option in chosen]
    return sum(
        any(similarity(has, colour_of(option)) > _ENOUGH for has in plain) for option in wanted
    )


def _kind(product: Product, *, goal: Goal, tagger: Tagger) -> dict[str, Any]:
    """Return whether it is the kind of product that was wanted."""
    is_query = product.query == goal.query
    common = _categories(product.product_category) & _categories(goal.product_category)
    wanted = tagger.nouns(goal.name)
    shared = set(tagger.nouns(product.title)) & set(wanted)
    title_score = len(shared) / len(wanted) if wanted else 0.2
    r_type = 1.0 if is_query or len(common) >= 2 or title_score > 0.2 else 0.5
    if title_score < 0.1:
        r_type = 0.1 if title_score else 0.0
    return {
        "r_type": r_type,
        "query_match": is_query,
        "category_match": len(common) >= 2,
        "title_score": title_score,
    }


def _categories(text: str) -> set[str]:
    return {part.strip() for part in text.split("\u203a")}


@lru_cache(4096)
def _plain(text: str) -> str:
    plain: str = utils.default_process(text.encode("ascii", "ignore").decode())
    return plain


@cache
def _colours() -> tuple[str, ...]:
    file = files("trinity_envs_webshop") / "data" / "color_words.json"
    return tuple(json.loads(file.read_text(encoding="utf-8")))
