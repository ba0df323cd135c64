"""Know what to do next: what demonstrations are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity_envs_webshop.reward import colour_of, similarity

if TYPE_CHECKING:
    from trinity_envs_webshop.env import WebShopEnv
    from trinity_envs_webshop.product import Product

__all__ = ["oracle_action", "wanted_choices"]


def oracle_action(env: WebShopEnv, *, words: str | None = None) -> str:
    """Return the next action on the way to buying the goal's own product.

    Args:
        env: the environment, on any page.
        words: what to search for; None: the product's title.
    """
    session = env.session
    clickables = session.page.clickables
    product = session.shop.catalogue.product(_goal_number(env))
    if session.page.has_search_bar:
        return f"search[{words or product.title}]"
    if "buy now" in clickables:
        return _on_a_product(env, product)
    if product.asin.lower() in clickables:
        return f"click[{product.asin.lower()}]"
    has_more = "next >" in clickables and session.page_number < _LAST_PAGE
    return "click[next >]" if has_more else "click[back to search]"


def _on_a_product(env: WebShopEnv, product: Product) -> str:
    session = env.session
    if session.asin != product.asin:
        return "click[back to search]"
    for name, value in wanted_choices(product, env.goal.goal_options).items():
        can_be_chosen = session.page.option_of.get(value) == name
        if can_be_chosen and session.options.get(name) != value:
            return f"click[{value}]"
    return "click[buy now]"


_LAST_PAGE = 5


def wanted_choices(product: Product, wanted: list[str] | dict[str, str]) -> dict[str, str]:
    """Return the value to choose for each option that the goal asks for."""
    if isinstance(wanted, dict):
        return dict(wanted)
    choices = {}
    for wish in wanted:
        found = [
            (similarity(colour_of(value), colour_of(wish)), value == wish, name, value)
            for name, values in product.options.items()
            for value in values
        ]
        if found:
            _, _, name, value = max(found, key=lambda entry: entry[:2])
            choices[name] = value
    return choices


def _goal_number(env: WebShopEnv) -> int:
    number = env.shop.catalogue.number_of(env.goal.asin)
    assert number is not None, "goals are made of the catalogue's own products"
    return number
