"""Open a built catalogue: records on disk, what is looked up often in memory-mapped arrays."""

from __future__ import annotations

import json
import mmap
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from trinity_envs_webshop.catalogue_build import built_folder
from trinity_envs_webshop.folder import WebShopFiles
from trinity_envs_webshop.product import Product

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Catalogue"]

_NUM_PRODUCTS_KEPT = 2048


class Catalogue:
    """The products of a shop, numbered in the order of the file; never changed, for all threads.

    Args:
        folder: where the published files are; the index is built beside them on first use.
        num_products: only the first so many entries; None: all.
    """

    def __init__(self, folder: str | Path, *, num_products: int | None = None) -> None:
        self.files = WebShopFiles.in_folder(folder)
        self.built = built_folder(self.files, num_products=num_products)
        self.facts = json.loads((self.built / "facts.json").read_text())
        self._categories = {name: code for code, name in enumerate(self.facts["categories"])}
        self._queries = {name: code for code, name in enumerate(self.facts["queries"])}
        self._asins = self.array("asins")
        self._sorted_asins = self.array("sorted_asins")
        self._asin_order = self.array("asin_order")
        self._offsets = self.array("offsets")
        self._records = _mapped(self.built / "records.jsonl")
        self.product = lru_cache(_NUM_PRODUCTS_KEPT)(self._read)

    def __len__(self) -> int:
        return len(self._asins)

    def array(self, name: str) -> np.ndarray:
        """Return one of the arrays that were built."""
        values: np.ndarray = np.load(self.built / f"{name}.npy", mmap_mode="r")
        return values

    def asin(self, number: int) -> str:
        """Return a product's id."""
        return bytes(self._asins[number]).decode("utf-8", "surrogatepass")

    def number_of(self, asin: str) -> int | None:
        """Return the number of the product of that id; None: there is none."""
        wanted = asin.encode("utf-8", "surrogatepass")
        if len(wanted) > self._sorted_asins.dtype.itemsize:
            return None
        place = int(np.searchsorted(self._sorted_asins, np.bytes_(wanted)))
        is_there = place < len(self) and self._sorted_asins[place] == wanted
        return int(self._asin_order[place]) if is_there else None

    def of_category(self, category: str) -> Sequence[int]:
        """Return the products of a category, in order."""
        return self._where("category", self._categories.get(category))

    def of_query(self, query: str) -> Sequence[int]:
        """Return the products whose query it is, in order."""
        return self._where("query", self._queries.get(query))

    def _where(self, name: str, code: int | None) -> Sequence[int]:
        if code is None:
            return ()
        numbers: Sequence[int] = np.flatnonzero(self.array(name) == code).astype(np.int32)  # type: ignore[assignment]
        return numbers

    def _read(self, number: int) -> Product:
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        return Product.from_line(self._records[start:end])


def _mapped(path: Path) -> mmap.mmap | bytes:
    if path.stat().st_size == 0:
        return b""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
