"""Walk one customer through the pages of a shop."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity_envs_webshop.page import (
    BACK_TO_SEARCH,
    BUY_NOW,
    NEXT,
    PREVIOUS,
    SUB_PAGES,
    Page,
    done_page,
    product_page,
    results_page,
    search_page,
    sub_page,
)
from trinity_envs_webshop.reward import reward_of

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from trinity_envs_webshop.goal import Goal
    from trinity_envs_webshop.product import Product
    from trinity_envs_webshop.shop import Shop

__all__ = ["BASE_URL", "Session"]

BASE_URL = "http://127.0.0.1:3000"
_PAGE_KINDS = ("search_results", "item_page", "item_sub_page", "done")
_A_PAGE = 10


@dataclass(slots=True)
class Session:
    """Where a customer is, and what they looked at and chose."""

    name: str
    goal: Goal
    shop: Shop
    rng: random.Random
    url: str = ""
    page: Page = field(default_factory=lambda: Page([]))
    words: list[str] = field(default_factory=list)
    page_number: int = 1
    product_number: int | None = None
    visited: set[str] = field(default_factory=set)
    options: dict[str, str] = field(default_factory=dict)
    reward_info: dict[str, Any] | None = None  # of the last purchase
    _found: Sequence[int] = ()
    _found_for: list[str] | None = None

    def start(self) -> None:
        """Go to the search page and forget everything but the goal."""
        self.words, self.page_number, self.product_number = [], 1, None
        self.visited, self.options, self.reward_info = set(), {}, None
        self.url = f"{BASE_URL}/{self.name}"
        self.page = search_page(self.goal.instruction_text)

    def search(self, words: list[str]) -> None:
        """Go to the first page of what the words find."""
        self._show_results(words, 1)

    def click(self, name: str) -> tuple[float, bool]:
        """Click on what the page has under that name; return the reward and whether it is over."""
        if name == BUY_NOW.lower():
            return self._buy(), True
        if name == BACK_TO_SEARCH.lower():
            self.start()
        elif name in {NEXT.lower(), PREVIOUS.lower()} and self._kind == "search_results":
            step = 1 if name == NEXT.lower() else -1
            self._show_results(self.words, self.page_number + step)
        elif name == PREVIOUS.lower() and self._kind == "item_page":
            self._show_results(self.words, self.page_number)
        elif name in _SUB_PAGE_OF:
            self._show_sub_page(_SUB_PAGE_OF[name])
        else:
            self._choose(name)
            self._show_product()
        return 0.0, False

    @property
    def asin(self) -> str:
        """Return the id of the product that is looked at."""
        return self._product.asin

    @property
    def _kind(self) -> str:
        """Return the kind of page, by the first name that occurs anywhere in the URL."""
        return next((kind for kind in _PAGE_KINDS if kind in self.url), "")

    @property
    def _product(self) -> Product:
        assert self.product_number is not None, "only product pages lead here"
        return self.shop.catalogue.product(self.product_number)

    def _choose(self, name: str) -> None:
        """Note the product or the option that was clicked; the way back to a product is neither."""
        kind = self.page.clickables[name]
        if kind == "link":
            self.product_number = self.shop.catalogue.number_of(name.upper())
            self.visited.add(self.asin)
        elif kind == "option":
            self.options[self.page.option_of[name]] = name

    def _show_results(self, words: list[str], page_number: int) -> None:
        if words != self._found_for or words[:1] == ["<r>"]:
            self._found, self._found_for = self.shop.found(words, self.rng), words
        self.words, self.page_number = words, page_number
        self.product_number, self.options = None, {}
        shown = self._found[(page_number - 1) * _A_PAGE : page_number * _A_PAGE]
        self.url = f"{BASE_URL}/search_results/{self.name}/{'+'.join(words)}/{page_number}"
        self.page = results_page(
            self.goal.instruction_text,
            products=[self.shop.catalogue.product(int(number)) for number in shown],
            page=page_number,
            total=len(self._found),
        )

    def _show_product(self) -> None:
        place = f"{self.name}/{self.asin}/{'+'.join(self.words)}/{self.page_number}"
        self.url = f"{BASE_URL}/item_page/{place}/{json.dumps(self.options)}"
        self.page = product_page(
            self.goal.instruction_text,
            product=self._product,
            show_attributes=self.shop.settings.show_attrs,
        )

    def _show_sub_page(self, name: str) -> None:
        place = f"{self.name}/{self.asin}/{'+'.join(self.words)}/{self.page_number}"
        self.url = f"{BASE_URL}/item_sub_page/{place}/{name}/{self.options}"
        self.page = sub_page(self.goal.instruction_text, product=self._product, name=name)

    def _buy(self) -> float:
        assert self.product_number is not None, "only product pages have the button"
        reward, self.reward_info = reward_of(
            self._product,
            goal=self.goal,
            price=float(self.shop.prices[self.product_number]),
            options=self.options,
            tagger=self.shop.tagger,
        )
        self.url = f"{BASE_URL}/done/{self.name}/{self.asin}/{self.options}"
        self.page = done_page(asin=self.asin, options=self.options, reward=reward)
        return reward


_SUB_PAGE_OF = {name.lower(): name for name in SUB_PAGES}
