"""Make a catalogue of invented products in the published files' format."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["product_entry", "write_catalogue"]

_FILES = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_WISHED_FOR = 12_000  # products that people want, as in the full published set
_STRIDE = 1_000_003_000_007  # shares no factor with 36 ** 8: ids never meet

_Words = tuple[str, ...]
# category, path, kinds of product, what they may be, which options they have
_SHELVES: tuple[tuple[str, str, _Words, _Words, _Words], ...] = (
    (
        "beauty",
        "Beauty & Personal Care \u203a Hair Care \u203a Treatments",
        ("hair mask", "shampoo bar", "scalp serum", "beard oil", "hair brush", "styling clay"),
        ("sulfate free", "paraben free", "cruelty free", "tea tree", "dry scalp", "fine mist"),
        ("scent", "size"),
    ),
    (
        "beauty",
        "Beauty & Personal Care \u203a Skin Care \u203a Face",
        ("face cream", "lip balm", "eye patch", "body lotion", "hand soap", "clay cleanser"),
        ("fragrance free", "hyaluronic acid", "sensitive skin", "oil free", "travel size"),
        ("scent", "size"),
    ),
    (
        "electronics",
        "Electronics \u203a Portable Audio & Video \u203a Speakers",
        ("bluetooth speaker", "hdmi cable", "phone tripod", "desk microphone", "travel adapter"),
        ("high speed", "gold plated", "stereo sound", "fast charging", "plug play", "hands free"),
        ("color", "length"),
    ),
    (
        "electronics",
        "Electronics \u203a Computers & Accessories \u203a Tablets",
        ("tablet sleeve", "laptop stand", "usb hub", "webcam cover", "gaming mouse", "ring light"),
        ("easy install", "heavy duty", "non slip", "carrying case", "dust proof"),
        ("color", "size"),
    ),
    (
        "garden",
        "Home & Kitchen \u203a Furniture \u203a Living Room Furniture",
        ("coffee table", "floor lamp", "bar stool", "book shelf", "storage ottoman", "wall clock"),
        ("solid wood", "easy assemble", "mid century", "space saving", "steel frame"),
        ("color", "size"),
    ),
    (
        "garden",
        "Home & Kitchen \u203a Bedding \u203a Blankets & Throws",
        ("throw blanket", "pillow cover", "window curtain", "bath towel", "shower mat"),
        ("machine washable", "super soft", "fade resistant", "king size", "quick drying"),
        ("color", "size"),
    ),
    (
        "fashion",
        "Clothing, Shoes & Jewelry \u203a Men \u203a Shirts",
        ("dress shirt", "rain jacket", "wool sweater", "cargo shorts", "running tights"),
        ("long sleeve", "machine wash", "slim fit", "button closure", "moisture wicking"),
        ("color", "size"),
    ),
    (
        "fashion",
        "Clothing, Shoes & Jewelry \u203a Women \u203a Shoes",
        ("ankle boot", "canvas sneaker", "leather sandal", "house slipper", "snow boot"),
        ("rubber sole", "arch support", "memory foam", "ankle strap", "non slip"),
        ("color", "size"),
    ),
    (
        "grocery",
        "Grocery & Gourmet Food \u203a Snack Foods \u203a Bars",
        ("granola bar", "beef jerky", "rice cracker", "trail mix", "fruit snack", "herbal tea"),
        ("gluten free", "keto friendly", "low sugar", "plant based", "high protein", "nut free"),
        ("flavor", "size"),
    ),
)
_VALUES = {
    "color": ("Black", "White", "Navy Blue", "Forest Green", "Ruby Red", "Dark Walnut", "Sand",
              "Charcoal Grey", "Ivory", "Teal", "Rose Gold", "Mustard"),
    "size": ("Small", "Medium", "Large", "X-Large", "XX-Large", "Twin", "Queen", "3 Pack",
             "6 Pack"),
    "scent": ("Ginger Fresh", "Bright Citrus", "Lavender Fields", "Cedar", "Vanilla Bean", "Rose"),
    "length": ("3 Feet", "6 Feet", "10 Feet", "15 Feet"),
    "flavor": ("Sea Salt", "Dark Chocolate", "Smoked Paprika", "Maple", "Peanut Butter", "Lemon"),
}  # fmt: skip
_BRANDS = (
    "Ablewick", "Brandmere", "Corvane", "Dellaria", "Everholt", "Fennimore", "Glasswing", "Hartlow",
    "Islemont", "Juniva", "Kelmore", "Lorrimer", "Maplehurst", "Northvale", "Oakhaven", "Perrault",
    "Quenby", "Rosmarin", "Silverdun", "Tamsin", "Ullswater", "Verity", "Westbrook", "Yarrow",
)  # fmt: skip
_MANNERS = (
    "Everyday", "Classic", "Premium", "Modern", "Compact", "Outdoor", "Handmade", "Vintage",
    "Portable", "Gentle", "Sturdy", "Breathable", "Lightweight", "Elegant", "Rustic", "Deluxe",
)  # fmt: skip
_REMARKS = (
    "Ships in a recyclable box.",
    "Wipe with a damp cloth.",
    "A gift for family and friends.",
    "Measured by hand; allow a small error.",
    "Made to last through daily use.",
    "Keep away from open fire.",
    "Designed in small batches.",
    "Fits most homes.",
)


def write_catalogue(folder: Path, *, num_products: int, seed: int = 0) -> None:
    """Write the three files of a catalogue, the same for the same seed.

    Raises:
        DataError: the folder holds other data, which are never written over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    there = [name for name in _FILES if (folder / name).exists()]
    if there:
        raise DataError(
            f"{folder} already holds {' and '.join(there)}. Name another folder, or remove them."
        )
    unfinished = [folder / f"{name}.unfinished" for name in _FILES]
    with ExitStack() as stack:
        products, attributes, people = (
            stack.enter_context(path.open("w", encoding="utf-8")) for path in unfinished
        )
        marks = ["[\n", "{\n", "{\n"]
        a_wish_every = max(1, num_products // _MOST_WISHED_FOR)
        for number in range(num_products):
            entry, about, wishes = product_entry(number, seed=seed)
            products.write(marks[0] + json.dumps(entry))
            attributes.write(f"{marks[1]}{json.dumps(entry['asin'])}: {json.dumps(about)}")
            if wishes and number % a_wish_every == 0:
                people.write(f"{marks[2]}{json.dumps(entry['asin'])}: {json.dumps(wishes)}")
                marks[2] = ",\n"
            marks[0] = marks[1] = ",\n"
        products.write("\n]\n")
        attributes.write("\n}\n")
        people.write("\n}\n" if marks[2] != "{\n" else "{}\n")
    for path in unfinished:
        path.rename(path.with_suffix(""))


def product_entry(
    number: int, *, seed: int = 0
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Return a product, what is said about it, and what people want of it."""
    rng = random.Random(f"webshop {seed} {number}")
    category, path, kinds, qualities, option_names = rng.choice(_SHELVES)
    kind, brand = rng.choice(kinds), rng.choice(_BRANDS)
    attributes = rng.sample(qualities, rng.randint(2, 4))
    manners = rng.sample(_MANNERS, 2)
    asin = _asin(number)
    options = {
        name: rng.sample(_VALUES[name], rng.randint(1, min(5, len(_VALUES[name]))))
        for name in option_names
        if rng.random() < 0.8
    }
    title = (
        f"{brand} {manners[0]} {kind.title()}, {manners[1]} with {attributes[0].title()} "
        f"- Model {asin[-4:]}"
    )
    entry = {
        "asin": asin,
        "name": title,
        "full_description": " ".join(_description(rng, kind=kind, attributes=attributes)),
        "small_description": [f"{a.capitalize()} {kind}." for a in attributes]
        + rng.sample(_REMARKS, 2),
        "pricing": _pricing(rng),
        "images": [f"https://img.example/{asin}.jpg"],
        "product_category": f"{path} \u203a {kind.title()}s",
        "category": category,
        "query": kind,
        "customization_options": {
            name.title(): [{"value": value, "image": None} for value in values]
            for name, values in options.items()
        }
        or "",
        "page": 1 + number % 10,
    }
    wanted = rng.sample(attributes, rng.randint(1, 2))
    about: dict[str, Any] = {"attributes": attributes}
    if rng.random() < 0.6:
        about["instruction"] = f"i am looking for a {kind} that is {' and '.join(wanted)}"
        about["instruction_attributes"] = wanted
    return entry, about, list(_wishes(rng, asin=asin, entry=entry, attributes=attributes))


def _wishes(
    rng: random.Random, *, asin: str, entry: dict[str, Any], attributes: list[str]
) -> Iterator[dict[str, Any]]:
    for _ in range(rng.choice((0, 1, 1, 2))):
        wanted = rng.sample(attributes, rng.randint(1, 2))
        options = [
            rng.choice(values)["value"].lower()
            for values in (entry["customization_options"] or {}).values()
        ]
        of = f" in {' and '.join(options)}" if options else ""
        text = f"i need a {' '.join(wanted)} {entry['query']} by {entry['name'].split()[0]}{of}."
        yield {
            "asin": asin,
            "instruction": text,
            "instruction_attributes": wanted,
            "instruction_options": options,
        }


def _description(rng: random.Random, *, kind: str, attributes: list[str]) -> Iterator[str]:
    yield f"This {kind} is {attributes[-1]}."
    yield from rng.sample(_REMARKS, 3)
    yield f"Lot {rng.randrange(100_000)}."


def _pricing(rng: random.Random) -> str:
    low = rng.uniform(3, 120)
    kind = rng.random()
    if kind < 0.1:
        return ""
    if kind < 0.3:
        return f"${low:.2f} - ${low * rng.uniform(1.1, 1.8):.2f}"
    return f"${low * rng.choice((1, 1, 1, 20)):,.2f}"


def _asin(number: int) -> str:
    rest = number * _STRIDE % 36**8
    digits = []
    for _ in range(8):
        rest, digit = divmod(rest, 36)
        digits.append(_DIGITS[digit])
    return "B0" + "".join(reversed(digits))
