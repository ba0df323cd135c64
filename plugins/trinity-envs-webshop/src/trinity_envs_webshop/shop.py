"""Put a shop together: its products, its goals, its search engine and its tagger."""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from trinity.errors import ConfigError, unknown_name
from trinity.extend.component import imported_target

from trinity_envs_webshop.bm25 import BM25
from trinity_envs_webshop.catalogue import Catalogue
from trinity_envs_webshop.goal import Goals, HumanGoals, SyntheticGoals
from trinity_envs_webshop.tagger import tagger_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity_envs_webshop.goal import GoalFilter
    from trinity_envs_webshop.tagger import Tagger

__all__ = ["NUM_FOUND", "SearchEngine", "Shop", "ShopSettings", "open_shop"]

NUM_FOUND = 50
_logger = logging.getLogger("trinity.webshop")


class SearchEngine(Protocol):
    """Any class of yours, built as ``Class(catalogue)``; named ``module:Class``."""

    def search(self, text: str, *, limit: int) -> list[tuple[int, float]]:
        """Return the numbers of the best products with their scores, best first."""


@dataclass(frozen=True)
class ShopSettings:
    """What makes two shops the same.

    Attributes:
        num_products: only the first so many entries of the file; None: all.
        human_goals: what people wrote; False: the synthetic goals.
        limit_goals: that many goals drawn by weight; None or -1: all.
        show_attrs: whether product pages have the button Attributes.
        seed: of prices and price bounds.
        tagger: lexicon, textblob, spacy, or module:Class.
        search_engine: bm25, or module:Class.
    """

    num_products: int | None = None
    human_goals: bool = True
    limit_goals: int | None = None
    show_attrs: bool = False
    seed: int = 0
    tagger: str = "lexicon"
    search_engine: str = "bm25"


class Shop:
    """Everything that sessions share; never changed once it is open, for all threads.

    Args:
        folder: where the published files are.
        settings: how the shop is set up.
        tagger: a tagger at hand, instead of the one that the settings name.
        keep: which goals are left, by position after the shuffle and goal; None: all.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: ShopSettings | None = None,
        *,
        tagger: Tagger | None = None,
        keep: GoalFilter | None = None,
    ) -> None:
        self.settings = settings = settings or ShopSettings()
        self.tagger = tagger or tagger_named(settings.tagger)
        self.catalogue = Catalogue(folder, num_products=settings.num_products)
        self.engine = _engine_named(settings.search_engine, self.catalogue)
        rng = random.Random(settings.seed)
        self.prices = _drawn_prices(self.catalogue, rng)
        kind = HumanGoals if settings.human_goals else SyntheticGoals
        made = kind(self.catalogue, prices=self.prices, rng=rng)
        self.goals = Goals(made, rng=rng, keep=keep, limit=settings.limit_goals)
        self.rng_state: tuple[Any, ...] = rng.getstate()  # a new environment draws on from here

    def found(self, words: list[str], rng: random.Random) -> Sequence[int]:
        """Return the numbers of the products that a search finds, best first."""
        match words:
            case ["<r>", *_]:
                return rng.sample(range(len(self.catalogue)), min(NUM_FOUND, len(self.catalogue)))
            case ["<c>", category, *_]:
                return self.catalogue.of_category(category.strip())
            case ["<c>"]:
                return ()
            case ["<q>", *rest]:
                return self.catalogue.of_query(" ".join(rest).strip())
            case ["<a>", *_]:
                _say_once_that_attributes_are_not_looked_up()
        hits = self.engine.search(" ".join(words), limit=NUM_FOUND)
        return [number for number, _ in hits]


def open_shop(folder: str | Path, settings: ShopSettings) -> Shop:
    """Return the shop of these settings, opened once in this process."""
    key = (str(Path(folder).resolve()), settings)
    with _opening:
        if key not in _open_shops:
            _open_shops[key] = Shop(folder, settings)
        return _open_shops[key]


_open_shops: dict[tuple[str, ShopSettings], Shop] = {}
_opening = threading.Lock()


@cache
def _say_once_that_attributes_are_not_looked_up() -> None:
    _logger.warning("search[<a> ...] fails in the published WebShop; here it is an ordinary search")


def _engine_named(name: str, catalogue: Catalogue) -> SearchEngine:
    if name == "bm25":
        return BM25(
            catalogue.built,
            num_documents=catalogue.facts["num_documents"],
            num_tokens=catalogue.facts["num_tokens"],
            id_of=catalogue.asin,
        )
    if ":" not in name:
        raise ConfigError(f"{unknown_name('search engine', name, ['bm25'])} Or write module:Class.")
    engine: SearchEngine = imported_target(name)(catalogue)
    return engine


def _drawn_prices(catalogue: Catalogue, rng: random.Random) -> np.ndarray:
    """Return each product's price; of a range, one drawn in the order of the file."""
    prices = np.array(catalogue.array("price_low"))
    high = np.array(catalogue.array("price_high"))
    for number in np.flatnonzero(~np.isnan(high)).tolist():
        prices[number] = rng.uniform(float(prices[number]), float(high[number]))
    return prices
