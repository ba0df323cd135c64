"""Rank products as Lucene's BM25 does, to the last place of its float32 scores."""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from trinity_envs_webshop.analyzer import terms
from trinity_envs_webshop.index_build import length_of_code

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["BM25"]

_K1, _B = np.float32(0.9), np.float32(0.4)
_BLOCK = 512


class BM25:
    """An index opened from its folder; searched by many threads at once.

    Args:
        folder: where ``IndexBuilder`` wrote it.
        num_documents: how many documents there are.
        num_tokens: how many tokens they have, stop words left out.
        id_of: the id of a document, by which equal scores are ordered.
    """

    def __init__(
        self, folder: Path, *, num_documents: int, num_tokens: int, id_of: Callable[[int], str]
    ) -> None:
        self._num_documents = num_documents
        self._id_of = id_of
        self._terms = (folder / "terms.bin").read_bytes()
        self._term_ends = np.load(folder / "term_ends.npy", mmap_mode="r")
        self._starts = np.load(folder / "starts.npy", mmap_mode="r")
        self._documents = np.load(folder / "documents.npy", mmap_mode="r").view(np.ndarray)
        self._weights = np.load(folder / "weights.npy", mmap_mode="r").view(np.ndarray)
        codes = np.load(folder / "weight_codes.npy")
        average = np.float32(max(num_tokens, 1) / max(num_documents, 1))
        self._tf_norm = (codes >> 8).astype(np.float32) * _norm_cache(average)[codes & 0xFF]
        self._local = threading.local()

    def search(self, text: str, *, limit: int = 50) -> list[tuple[int, float]]:
        """Return the best documents with their scores; equal scores by id."""
        found = self._postings_of(text)
        if not found:
            return []
        sums = self._sums()
        for weight, start, end in found:
            scores = weight - weight / (np.float32(1) + self._tf_norm)
            sums[self._documents[start:end]] += scores[self._weights[start:end]]
        best = self._best(sums, limit)
        sums.fill(0.0)
        return best

    def _postings_of(self, text: str) -> list[tuple[np.float32, int, int]]:
        """Return the weight and the range of postings of each known term of the text."""
        found = []
        for term, frequency in Counter(terms(text)).items():
            place = self._place_of(term)
            if place is None:
                continue
            start, end = int(self._starts[place]), int(self._starts[place + 1])
            rarity = math.log(1 + (self._num_documents - (end - start) + 0.5) / (end - start + 0.5))
            found.append((np.float32(frequency) * np.float32(rarity), start, end))
        return found

    def _place_of(self, term: str) -> int | None:
        """Return the number of a term, by bisection of the sorted terms."""
        wanted = term.encode("utf-8", "surrogatepass")
        low, high = 0, len(self._term_ends) - 1
        while low < high:
            middle = (low + high) // 2
            if self._term_at(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        is_there = low < len(self._term_ends) - 1 and self._term_at(low) == wanted
        return low if is_there else None

    def _term_at(self, place: int) -> bytes:
        return self._terms[self._term_ends[place] : self._term_ends[place + 1]]

    def _sums(self) -> np.ndarray:
        """Return this thread's array of sums, all zero, in whole blocks."""
        if not hasattr(self._local, "sums"):
            num_blocks = -(-self._num_documents // _BLOCK)
            self._local.sums = np.zeros(num_blocks * _BLOCK, np.float64)
        sums: np.ndarray = self._local.sums
        return sums

    def _best(self, sums: np.ndarray, limit: int) -> list[tuple[int, float]]:
        """Return the documents of the highest sums.

        The best sums of the blocks give a bound that ``limit`` documents reach at least.
        """
        of_block = sums.reshape(-1, _BLOCK).max(axis=1)
        bound = 0.0
        if len(of_block) > limit:
            bound = float(np.partition(of_block, -limit)[-limit])
        below = float(np.nextafter(np.float32(bound), np.float32(0)))  # rounded, it may reach it
        hit_blocks = np.flatnonzero(of_block >= below)
        blocks = sums.reshape(-1, _BLOCK)[hit_blocks]
        rows, columns = np.nonzero((blocks >= below) & (blocks > 0))
        scores = blocks[rows, columns].astype(np.float32)
        documents = hit_blocks[rows] * _BLOCK + columns
        if len(scores) > limit:
            least = np.partition(scores, -limit)[-limit]
            is_kept = scores >= least
            scores, documents = scores[is_kept], documents[is_kept]
        hits = [
            (-score, self._id_of(document), document)
            for document, score in zip(documents.tolist(), scores.tolist(), strict=True)
        ]
        return [(document, -score) for score, _, document in sorted(hits)[:limit]]


def _norm_cache(average: np.float32) -> np.ndarray:
    """Return for each length code the factor of how often a term occurs."""
    lengths = np.array([length_of_code(code) for code in range(256)], np.float32)
    one = np.float32(1)
    return one / (_K1 * ((one - _B) + _B * lengths / average))
