"""Read a product from the published files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any

__all__ = ["Product", "is_usable", "product_of"]

_NOT_A_NUMBER = re.compile(r"[^\d.]")
_NO_PRICE = [100.0]


@dataclass(frozen=True, slots=True)
class Product:
    """One product as the shop shows it."""

    asin: str
    title: str
    description: str = ""
    bullet_points: list[str] = field(default_factory=list)
    prices: list[float] = field(default_factory=lambda: list(_NO_PRICE))  # one, or two: a range
    price_text: str = "$100.0"
    options: dict[str, list[str]] = field(default_factory=dict)
    query: str = ""
    category: str = ""
    product_category: str = ""
    attributes: list[str] = field(default_factory=list)
    instruction: str | None = None  # of a synthetic goal; None: the product has none
    instruction_attributes: list[str] = field(default_factory=list)

    @property
    def document(self) -> str:
        """Return the text that the search finds the product by."""
        options = ", and ".join(
            f"{name}: {', '.join(values)}" for name, values in self.options.items()
        )
        first_bullet = self.bullet_points[0] if self.bullet_points else ""
        return " ".join([self.title, self.description, first_bullet, options]).lower()

    def to_line(self) -> bytes:
        """Return the product as one line of a file."""
        values = [getattr(self, name) for name in _NAMES]
        return json.dumps(values, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Product:
        """Return the product that ``to_line`` wrote."""
        return cls(*json.loads(line))


_NAMES = [one.name for one in fields(Product)]


def is_usable(asin: object) -> bool:
    """Return whether a product of that id is sold: neither "nan" nor longer than ten."""
    return isinstance(asin, str) and asin != "nan" and len(asin) <= 10


def product_of(entry: dict[str, Any], *, instructions: dict[str, Any] | None) -> Product:
    """Return the product of an entry of ``items_shuffle.json``.

    Args:
        entry: the entry.
        instructions: what ``items_ins_v2.json`` says about it; None: nothing.
    """
    bullets = entry.get("small_description") or []
    known = instructions or {}
    prices, price_text = _prices_of(entry.get("pricing"))
    return Product(
        asin=entry["asin"],
        title=_text(entry.get("name")),
        description=_text(entry.get("full_description")),
        bullet_points=[bullets] if isinstance(bullets, str) else [_text(b) for b in bullets],
        prices=prices,
        price_text=price_text,
        options=_options_of(entry.get("customization_options")),
        query=_text(entry.get("query")).lower().strip(),
        category=_text(entry.get("category")),
        product_category=_text(entry.get("product_category")),
        attributes=known.get("attributes", ["DUMMY_ATTR"]),
        instruction=known.get("instruction"),
        instruction_attributes=known.get("instruction_attributes") or [],
    )


def _prices_of(pricing: object) -> tuple[list[float], str]:
    """Return one price or a range, and how it is shown; what cannot be read counts as missing."""
    pieces = pricing.split("$")[1:] if isinstance(pricing, str) else []
    try:
        prices = [float(Decimal(_NOT_A_NUMBER.sub("", piece))) for piece in pieces]
    except InvalidOperation:
        prices = []
    if not prices:
        prices = list(_NO_PRICE)
    if len(prices) == 1:
        return prices, f"${prices[0]}"
    return prices[:2], f"${prices[0]} to ${prices[1]}"


def _options_of(given: object) -> dict[str, list[str]]:
    if not isinstance(given, dict):
        return {}
    return {
        name.lower(): [choice["value"].strip().replace("/", " | ").lower() for choice in choices]
        for name, choices in given.items()
        if choices is not None
    }


def _text(value: object) -> str:
    return "" if value is None else str(value)
