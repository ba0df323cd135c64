"""Make the pages of the shop, as the text nodes that a browser would show."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from trinity_envs_webshop.product import Product

__all__ = [
    "BACK_TO_SEARCH",
    "BUY_NOW",
    "NEXT",
    "PREVIOUS",
    "SUB_PAGES",
    "Node",
    "Page",
    "done_page",
    "product_page",
    "results_page",
    "search_page",
    "sub_page",
]

Kind = Literal["text", "button", "option", "link"]
Node = tuple[Kind, str]

BACK_TO_SEARCH, NEXT, PREVIOUS, BUY_NOW = "Back to Search", "Next >", "< Prev", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
_ASCII_SPACE = " \t\n\r\x0b\x0c"
_SEPARATOR = " [SEP] "


@dataclass(slots=True)
class Page:
    """One page: what is read on it and what can be clicked."""

    nodes: list[Node]
    has_search_bar: bool = False
    option_of: Mapping[str, str] = field(default_factory=dict)  # value -> the option it belongs to
    clickables: dict[str, Kind] = field(init=False)

    def __post_init__(self) -> None:
        self.clickables = {text.lower(): kind for kind, text in self.nodes if kind == "button"}
        self.clickables |= {text.lower(): kind for kind, text in self.nodes if kind == "link"}
        self.clickables |= dict.fromkeys(self.option_of, "option")
        self.nodes = [(kind, shown) for kind, text in self.nodes if (shown := _shown(text))]

    def text(self) -> str:
        """Return the page in the mode ``text``."""
        return _SEPARATOR.join(text.strip() for _, text in self.nodes)

    def text_rich(self, *, url: str, visited: Collection[str]) -> str:
        """Return the page in the mode ``text_rich``, what was clicked marked."""
        pieces, notes = [], []
        for kind, text in self.nodes:
            if kind == "text":
                pieces.append(text)
            elif kind == "button":
                pieces.append(f"[button] {text} [button_]")
            elif kind == "link":
                mark = "clicked button" if text in visited else "button"
                pieces.append(f"\n[{mark}] {text} [{mark}_]")
            elif f'"{text}"' in url:
                pieces.append(f"  [clicked button] {text} [clicked button_]")
                notes.append(f"You have clicked {text}.\n")
            else:
                pieces.append(f"  [button] {text} [button_]")
        notes.reverse()
        return "".join(notes) + "".join(f"{piece}\n" for piece in pieces)


def search_page(instruction: str) -> Page:
    """Return the page with the search bar."""
    texts = ("WebShop", "Instruction: ", instruction)
    return Page([*_plain(texts), ("button", "Search")], has_search_bar=True)


def results_page(instruction: str, *, products: Iterable[Product], page: int, total: int) -> Page:
    """Return one page of what a search found."""
    nodes = _beginning(instruction)
    nodes.append(("text", f"Page {page} (Total results: {total})"))
    if page > 1:
        nodes.append(("button", PREVIOUS))
    nodes.append(("button", NEXT))
    for product in products:
        nodes.append(("link", product.asin))
        nodes += _plain((product.title, product.price_text))
    return Page(nodes)


def product_page(instruction: str, *, product: Product, show_attributes: bool) -> Page:
    """Return the page of a product with its options."""
    nodes = [*_beginning(instruction), ("button", PREVIOUS)]
    option_of: dict[str, str] = {}
    for name, values in product.options.items():
        nodes.append(("text", name))
        nodes += [("option", value) for value in values]
        option_of |= dict.fromkeys(values, name)
    nodes += _plain((product.title, f"Price: {product.price_text}", "Rating: N.A."))
    shown = SUB_PAGES if show_attributes else SUB_PAGES[:-1]
    nodes += [("button", name) for name in (*shown, BUY_NOW)]
    return Page(nodes, option_of=option_of)


def sub_page(instruction: str, *, product: Product, name: str) -> Page:
    """Return a product's description, features, reviews (there are none) or attributes."""
    nodes = [*_beginning(instruction), ("button", PREVIOUS)]
    if name == "Description":
        nodes += _plain((product.description,))
    elif name == "Features":
        nodes += _plain(f" {bullet}" for bullet in product.bullet_points)
    elif name == "Attributes":
        nodes += _plain(f" {attribute}" for attribute in product.attributes)
        nodes += _plain((product.category, product.query, product.product_category))
    return Page(nodes)


def done_page(*, asin: str, options: Mapping[str, str], reward: float) -> Page:
    """Return the page after buying."""
    bought = json.dumps(dict(options), sort_keys=True)
    for character in "<>&'":
        bought = bought.replace(character, f"\\u{ord(character):04x}")
    return Page(
        _plain([*_BEFORE_ASIN, asin, "options", bought, *_AFTER_OPTIONS, str(reward), *_END])
    )


_BEFORE_ASIN = (
    "Thank you for shopping with us!",
    "Your code: ",
    "None",
    " (Paste it in your MTurk interface.)",
    "Purchased",
    "asin",
)
_AFTER_OPTIONS = (
    *("attrs", "None", "category", "None", "query", "None", "product category", "None"),
    *("Target", "asin", "options", "attrs", "price upper", "instuction text", "category"),
    *("product category", "query", "Goal ", "None"),
    *("Reward", "Your score (min 0.0, max 1.0)"),
)
_END = ("Reward Details ", "None")


def _beginning(instruction: str) -> list[Node]:
    return [*_plain(("Instruction:", instruction)), ("button", BACK_TO_SEARCH)]


def _plain(texts: Iterable[str]) -> list[Node]:
    return [("text", text) for text in texts]


def _shown(text: str) -> str:
    """Return what a browser's parser keeps of a text; empty: nothing."""
    if text.strip(_ASCII_SPACE):
        return text
    return "" if not text or "\n" in text else " "
