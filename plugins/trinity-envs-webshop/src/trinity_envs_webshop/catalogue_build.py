"""Build what a catalogue needs beside the published files, once, in a folder of its own."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import sys
from array import array
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from trinity.errors import DataError

from trinity_envs_webshop.index_build import IndexBuilder
from trinity_envs_webshop.product import Product, is_usable, product_of
from trinity_envs_webshop.stream import entries_of, items_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trinity_envs_webshop.folder import WebShopFiles

__all__ = ["built_folder", "is_built"]

_FORMAT = 1  # raised when what is written changes
_FOLDER = ".trinity_webshop"
_logger = logging.getLogger("trinity.webshop")


def is_built(files: WebShopFiles, *, num_products: int | None = None) -> bool:
    """Return whether the folder holds what ``built_folder`` would build."""
    return _is_current(_folder_of(files, num_products), _Stamps(files))


def built_folder(files: WebShopFiles, *, num_products: int | None = None) -> Path:
    """Return the folder with the records and the index, building it where it is not there.

    Whoever comes while another process builds waits for it.

    Args:
        files: the published files.
        num_products: only the first so many entries; None: all.

    Raises:
        DataError: a file is damaged, or the folder cannot be written.
    """
    folder = _folder_of(files, num_products)
    stamps = _Stamps(files)
    if _is_current(folder, stamps):
        return folder
    with _lock(folder):
        if not _is_current(folder, stamps):
            _logger.warning("building the index of %s, once", files.products)
            unfinished = folder.with_name(f"{folder.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            facts = _Builder(unfinished).build(files, num_products=num_products)
            _write_json(unfinished / "facts.json", {"stamps": stamps.full(), **facts})
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)
    return folder


class _Builder:
    """The arrays of a catalogue while it is read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._asins: list[str] = []
        self._offsets = array("q", [0])
        self._low, self._high = array("d"), array("d")
        self._categories, self._queries = _Names(), _Names()
        self._instructed = _Instructed()

    def build(self, files: WebShopFiles, *, num_products: int | None) -> dict[str, Any]:
        """Write everything; return the facts."""
        instructions = {
            asin: json.dumps(entry, separators=(",", ":")).encode()
            for asin, entry in items_of(files.attributes)
        }
        index = IndexBuilder(self._folder)
        seen: set[str] = set()
        with (self._folder / "records.jsonl").open("wb") as records:
            for number, entry in enumerate(entries_of(files.products)):
                if num_products is not None and number >= num_products:
                    break
                asin = entry.get("asin") if isinstance(entry, dict) else None
                if asin is None:
                    raise DataError(
                        f"{files.products}, entry {number}, is no product: it has no asin."
                    )
                if not is_usable(asin) or asin in seen:
                    continue
                seen.add(asin)
                line = instructions.get(asin)
                try:
                    product = product_of(entry, instructions=json.loads(line) if line else None)
                except (TypeError, KeyError, AttributeError) as error:
                    raise DataError(
                        f"{files.products}, entry {number} ({asin}), cannot be read: {error!r}."
                    ) from error
                self._add(product, records)
                index.add(product.document)
        facts = index.finish()
        self._write()
        lacking = [asin for asin in self._asins if asin not in instructions]
        return {
            **facts,
            "categories": self._categories.names,
            "queries": self._queries.names,
            "num_without_entry": len(lacking),
            "without_entry": lacking[:10],
        }

    def _add(self, product: Product, records: Any) -> None:
        self._offsets.append(self._offsets[-1] + records.write(product.to_line()))
        number = len(self._asins)
        self._asins.append(product.asin)
        self._low.append(product.prices[0])
        self._high.append(product.prices[1] if len(product.prices) > 1 else np.nan)
        self._categories.add(product.category)
        self._queries.add(product.query)
        self._instructed.add(number, product)

    def _write(self) -> None:
        asins = np.array([asin.encode("utf-8", "surrogatepass") for asin in self._asins], bytes)
        order = np.argsort(asins, kind="stable")
        arrays = {
            "asins": asins if len(asins) else np.zeros(0, "S10"),
            "asin_order": order.astype(np.int32),
            "sorted_asins": asins[order] if len(asins) else np.zeros(0, "S10"),
            "offsets": np.frombuffer(self._offsets, np.int64),
            "price_low": np.array(self._low, np.float64),
            "price_high": np.array(self._high, np.float64),
            "category": np.array(self._categories.codes, np.int32),
            "query": np.array(self._queries.codes, np.int32),
            **self._instructed.arrays(),
        }
        for name, values in arrays.items():
            np.save(self._folder / f"{name}.npy", values)
        _write_json(self._folder / "attributes.json", self._instructed.attributes.names)


class _Names:
    """Names numbered in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self.codes = array("i")

    @property
    def names(self) -> list[str]:
        return list(self._numbers)

    def add(self, name: str) -> None:
        self.codes.append(self._numbers.setdefault(name, len(self._numbers)))


class _Instructed:
    """The products that have a synthetic instruction: how many goals, of which attributes."""

    def __init__(self) -> None:
        self._numbers, self._counts, self._ends = array("i"), array("q"), array("q", [0])
        self.attributes = _Names()

    def add(self, number: int, product: Product) -> None:
        if product.instruction is None or not product.instruction_attributes:
            return
        count = 1
        for values in product.options.values():
            count *= len(values)
        for attribute in product.instruction_attributes:
            self.attributes.add(attribute)
        self._numbers.append(number)
        self._counts.append(count)
        self._ends.append(len(self.attributes.codes))

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "goal_product": np.array(self._numbers, np.int32),
            "goal_count": np.array(self._counts, np.int64),
            "goal_attribute_ends": np.array(self._ends, np.int64),
            "goal_attributes": np.array(self.attributes.codes, np.int32),
        }


@dataclass
class _Stamps:
    """What tells whether the files are those that an index was built from."""

    files: WebShopFiles

    def quick(self) -> list[list[Any]]:
        """Return each file's name, size and time."""
        stats = [(file, file.stat()) for file in self.files.all()[:2]]
        return [[file.name, stat.st_size, stat.st_mtime_ns] for file, stat in stats]

    def full(self) -> dict[str, Any]:
        return {"quick": self.quick(), "digests": self.digests()}

    def digests(self) -> list[str]:
        return [_digest(file) for file in self.files.all()[:2]]


def _folder_of(files: WebShopFiles, num_products: int | None) -> Path:
    name = files.products.stem + ("" if num_products is None else f"-first{num_products}")
    return files.products.parent / _FOLDER / f"v{_FORMAT}-{sys.byteorder}-{name}"


def _is_current(folder: Path, stamps: _Stamps) -> bool:
    """Return whether the folder was built from these files, by time or else by content."""
    facts = folder / "facts.json"
    if not facts.is_file():
        return False
    known = json.loads(facts.read_text())
    if known["stamps"]["quick"] == stamps.quick():
        return True
    sizes = [entry[1] for entry in stamps.quick()]
    if sizes != [entry[1] for entry in known["stamps"]["quick"]]:
        return False
    if known["stamps"]["digests"] != stamps.digests():
        return False
    if os.access(facts, os.W_OK):
        known["stamps"]["quick"] = stamps.quick()  # the same files, copied: look no closer again
        _write_json(facts, known)
    return True


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def _write_json(path: Path, value: object) -> None:
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(value))
    unfinished.replace(path)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    try:
        folder.parent.mkdir(exist_ok=True)
        lock = folder.with_suffix(".lock").open("w")
    except OSError as error:
        raise DataError(
            f"the index cannot be stored beside the data: {error}. Make {folder.parent.parent} "
            f"writable once, or copy the data to a folder of yours."
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
