"""Shops to test in: the golden catalogue, and an invented one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trinity_envs_webshop.shop import Shop, ShopSettings
from trinity_envs_webshop.synthetic import write_catalogue

GOLDEN = Path(__file__).parent / "golden" / "webshop"


@pytest.fixture(scope="session")
def golden_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the golden catalogue, which an index may be built beside."""
    folder = tmp_path_factory.mktemp("webshop") / "golden"
    shutil.copytree(GOLDEN / "catalogue", folder)
    return folder


@pytest.fixture(scope="session")
def invented_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 120 invented products."""
    folder = tmp_path_factory.mktemp("webshop") / "invented"
    write_catalogue(folder, num_products=120)
    return folder


@pytest.fixture(scope="session")
def shop(invented_folder: Path) -> Shop:
    """Return a shop of invented products, with people's goals."""
    return Shop(invented_folder)


@pytest.fixture(scope="session")
def golden_shop(golden_folder: Path) -> Shop:
    """Return the shop of the golden catalogue."""
    return Shop(golden_folder, ShopSettings(seed=11))


@pytest.fixture
def make_shop(tmp_path: Path) -> Callable[..., Shop]:
    """Return a function that opens a shop of a few products; each takes what differs."""

    def made(*products: dict[str, Any], settings: ShopSettings | None = None) -> Shop:
        entries = [a_product(number, **given) for number, given in enumerate(products)]
        write_files(tmp_path, entries)
        return Shop(tmp_path, settings)

    return made


def a_product(number: int, **given: Any) -> dict[str, Any]:
    """Return an entry of the products' file."""
    return {
        "asin": f"B00000000{number}",
        "name": f"Plain Oak Table {number}",
        "full_description": "A table.",
        "small_description": ["Made of oak."],
        "pricing": "$20.00",
        "images": ["https://img.example/1.jpg"],
        "product_category": "Home \u203a Furniture \u203a Tables",
        "category": "garden",
        "query": "table",
        "customization_options": "",
        **given,
    }


def write_files(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Write the three files for these products; people want each of them once."""
    folder.mkdir(exist_ok=True)
    about = {
        entry["asin"]: {
            "attributes": ["solid wood"],
            "instruction": "find me a table",
            "instruction_attributes": ["solid wood"],
        }
        for entry in entries
    }
    wishes = {
        entry["asin"]: [
            {
                "instruction": "i want a table.",
                "instruction_attributes": ["solid wood"],
                "instruction_options": [],
            }
        ]
        for entry in entries
    }
    (folder / "items_shuffle.json").write_text(json.dumps(entries))
    (folder / "items_ins_v2.json").write_text(json.dumps(about))
    (folder / "items_human_ins.json").write_text(json.dumps(wishes))
