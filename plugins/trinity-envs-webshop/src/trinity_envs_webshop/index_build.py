"""Build the search index: the postings of each term, on disk."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from trinity_envs_webshop.analyzer import raw_words, term_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["IndexBuilder", "length_code", "length_of_code"]

_DOCUMENTS_A_PART = 20_000
_MAX_PIECES = 1_000_000  # remembered while building; beyond it they are forgotten


class IndexBuilder:
    """Takes documents one after another; ``finish`` writes the index.

    A part of the documents is sorted in memory and put aside on disk; the parts are merged by
    counting, so that a million documents need no more memory than the largest array.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._terms: dict[str, int] = {}
        self._pieces = _Pieces(self._terms)
        self._ids = array("i")
        self._lengths = array("i")  # of this part
        self._norms = array("B")
        self._num_tokens = 0
        self._parts: list[Path] = []

    def add(self, text: str) -> None:
        """Take the next document."""
        pieces, ids, before = self._pieces, self._ids, len(self._ids)
        for piece in text.split(" "):
            ids.extend(pieces[piece])
        length = len(ids) - before
        self._lengths.append(length)
        self._norms.append(length_code(length))
        self._num_tokens += length
        if len(self._lengths) >= _DOCUMENTS_A_PART:
            self._put_aside()

    def finish(self) -> dict[str, float]:
        """Write the arrays and return the numbers of the whole collection."""
        self._put_aside()
        num_terms, num_documents = len(self._terms), len(self._norms)
        order = sorted(self._terms, key=str.encode)
        place_of = np.empty(num_terms, np.int32)
        place_of[[self._terms[term] for term in order]] = np.arange(num_terms, dtype=np.int32)
        self._write_terms(order)
        np.save(self._folder / "norms.npy", np.frombuffer(self._norms, np.uint8))
        self._merge(place_of)
        for part in self._parts:
            part.unlink()
        return {"num_documents": num_documents, "num_tokens": self._num_tokens}

    def _put_aside(self) -> None:
        """Write (term, document, how often) of the documents since the last part, by term."""
        num_documents = len(self._lengths)
        if not num_documents:
            return
        first = len(self._norms) - num_documents
        lengths = np.frombuffer(self._lengths, np.int32)
        documents = np.repeat(np.arange(num_documents, dtype=np.int64), lengths)
        keys = (np.frombuffer(self._ids, np.int32).astype(np.int64) << 32) | documents
        keys.sort()
        keys, frequencies = _counted(keys)
        part = self._folder / f"part{len(self._parts)}.npy"
        rows = np.empty((3, len(keys)), np.int32)
        rows[0], rows[1], rows[2] = keys >> 32, (keys & 0xFFFFFFFF) + first, frequencies
        np.save(part, rows)
        self._parts.append(part)
        self._ids, self._lengths = array("i"), array("i")
        if len(self._pieces) > _MAX_PIECES:
            self._pieces.clear()

    def _write_terms(self, order: list[str]) -> None:
        encoded = [term.encode("utf-8", "surrogatepass") for term in order]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        (self._folder / "terms.bin").write_bytes(b"".join(encoded))
        np.save(self._folder / "term_ends.npy", ends)

    def _merge(self, place_of: np.ndarray) -> None:
        """Write all postings by term, documents ascending, and what each posting weighs."""
        counts = np.zeros(len(place_of), np.int64)
        codes = np.zeros(0, np.int64)
        norms = np.frombuffer(self._norms, np.uint8)
        for part in self._parts:
            rows = np.load(part, mmap_mode="r")
            counts += np.bincount(place_of[rows[0]], minlength=len(counts))
            codes = np.union1d(codes, _weight_code(rows, norms))
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        np.save(self._folder / "starts.npy", starts)
        np.save(self._folder / "weight_codes.npy", codes)
        total = int(starts[-1])
        small = np.uint16 if len(codes) <= 1 << 16 else np.uint32
        documents = _new_array(self._folder / "documents.npy", total, np.int32)
        weights = _new_array(self._folder / "weights.npy", total, small)
        cursors = starts[:-1].copy()
        for part in self._parts:
            rows = np.load(part)
            terms = place_of[rows[0]]
            firsts = np.flatnonzero(np.diff(rows[0], prepend=-1))
            sizes = np.diff(np.append(firsts, rows.shape[1]))
            places = np.arange(rows.shape[1]) - np.repeat(firsts, sizes) + cursors[terms]
            documents[places] = rows[1]
            weights[places] = np.searchsorted(codes, _weight_code(rows, norms))
            cursors[terms[firsts]] += sizes


def length_code(length: int) -> int:
    """Return the byte that Lucene keeps of a document's length: exact below 24."""
    if length < 24:
        return length
    rest = length - 24
    shift = max(0, rest.bit_length() - 4)
    mantissa = rest >> shift
    return 24 + (mantissa if shift == 0 else (mantissa & 7) + 8 * (shift + 1))


def length_of_code(code: int) -> int:
    """Return the length that a byte stands for.

    >>> [length_of_code(length_code(length)) for length in (23, 40, 41, 55, 1000)]
    [23, 40, 40, 54, 984]
    """
    if code < 24:
        return code
    rest = code - 24
    if rest < 8:
        return 24 + rest
    return 24 + ((8 + rest % 8) << (rest // 8 - 1))


class _Pieces(dict[str, tuple[int, ...]]):
    """The term numbers of each piece of text between two spaces, found once."""

    def __init__(self, terms: dict[str, int]) -> None:
        super().__init__()
        self._terms = terms

    def __missing__(self, piece: str) -> tuple[int, ...]:
        terms = self._terms
        found = (term_of(word) for word in raw_words(piece))
        ids = tuple([terms.setdefault(term, len(terms)) for term in found if term is not None])
        self[piece] = ids
        return ids


def _counted(sorted_keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different keys, and how often each occurs."""
    firsts = np.flatnonzero(np.diff(sorted_keys, prepend=-1))
    return sorted_keys[firsts], np.diff(np.append(firsts, len(sorted_keys)))


def _weight_code(rows: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Return one number for how often a term occurs in a document of that length code."""
    codes: np.ndarray = rows[2].astype(np.int64) << 8 | norms[rows[1]]
    return codes


def _new_array(path: Path, size: int, dtype: type) -> np.ndarray:
    if size == 0:
        np.save(path, np.zeros(0, dtype))
        return np.zeros(0, dtype)
    array: np.ndarray = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(size,))
    return array
