"""Measure our search beside the alternatives that were weighed, on the same terms and questions.

    python plugins/trinity-envs-webshop/benchmarks/search.py --products 1000

Alternatives: SQLite's FTS5, and of rank-bm25, bm25s and tantivy those that are installed. "equal"
is the share of questions whose list is ours, place by place; ours is the published environment's.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from trinity_envs_webshop.analyzer import terms
from trinity_envs_webshop.shop import NUM_FOUND, Shop
from trinity_envs_webshop.synthetic import write_catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Search = Callable[[list[str]], list[int]]


def main() -> None:
    """Print a line for each search engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--products", type=int, default=1000)
    parser.add_argument("--questions", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        write_catalogue(Path(made), num_products=given.products)
        began = time.process_time()
        shop = Shop(Path(made))
        built = time.process_time() - began
        questions = [shop.goals[number].instruction_text for number in range(given.questions)]
        ours, seconds = asked(lambda text: shop.found(text.split(), None), questions)
        report("ours", built=built, seconds=seconds, equal=1.0)
        numbers = range(given.products)
        documents = [terms(shop.catalogue.product(number).document) for number in numbers]
    for name, build in alternatives():
        began = time.process_time()
        search = build(documents)
        built = time.process_time() - began
        found, seconds = asked(lambda text, search=search: search(terms(text)), questions)
        equal = sum(map(list.__eq__, map(list, ours), found)) / len(questions)
        report(name, built=built, seconds=seconds, equal=equal)


def asked(search: Callable[[Any], Any], questions: list[Any]) -> tuple[list[Any], float]:
    """Return what was found, and the CPU seconds of a search."""
    for question in questions[:3]:
        search(question)
    began = time.process_time()
    found = [search(question) for question in questions]
    return found, (time.process_time() - began) / len(questions)


def report(name: str, *, built: float, seconds: float, equal: float) -> None:
    """Print one line."""
    sys.stdout.write(
        f"{name:>9}: {seconds * 1e3:>8.2f} ms of CPU a search, built in {built:>6.1f} s of CPU, "
        f"equal {equal:.0%}\n"
    )
    sys.stdout.flush()


def alternatives() -> Iterator[tuple[str, Callable[[list[list[str]]], Search]]]:
    """Yield the engines that are here."""
    yield "FTS5", fts5
    for name, build in (("tantivy", tantivy), ("bm25s", bm25s), ("rank_bm25", rank_bm25)):
        if find_spec(name):
            yield name, build


def fts5(documents: list[list[str]]) -> Search:
    """Return a search with SQLite."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE shop USING fts5(text)")
    rows = ((number, " ".join(words)) for number, words in enumerate(documents))
    connection.executemany("INSERT INTO shop(rowid, text) VALUES (?, ?)", rows)

    def search(words: list[str]) -> list[int]:
        question = " OR ".join(f'"{word}"' for word in words)
        ask = "SELECT rowid FROM shop WHERE shop MATCH ? ORDER BY rank LIMIT ?"
        return [number for (number,) in connection.execute(ask, (question, NUM_FOUND))]

    return search


def tantivy(documents: list[list[str]]) -> Search:
    """Return a search with tantivy."""
    import tantivy as library

    schema = library.SchemaBuilder()
    schema.add_text_field("text", tokenizer_name="whitespace")
    schema.add_integer_field("number", stored=True, fast=True)
    index = library.Index(schema.build())
    writer = index.writer(num_threads=1)
    for number, words in enumerate(documents):
        writer.add_document(library.Document(text=" ".join(words), number=number))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(words: list[str]) -> list[int]:
        quoted = " ".join(f'"{word}"' for word in words)
        hits = searcher.search(index.parse_query(quoted, ["text"]), NUM_FOUND).hits
        return [searcher.doc(address)["number"][0] for _, address in hits]

    return search


def bm25s(documents: list[list[str]]) -> Search:
    """Return a search with bm25s, set to Lucene's formula and WebShop's constants."""
    import bm25s as library

    index = library.BM25(method="lucene", k1=0.9, b=0.4)
    index.index(documents, show_progress=False)
    limit = min(NUM_FOUND, len(documents))

    def search(words: list[str]) -> list[int]:
        found, _ = index.retrieve([words], k=limit, show_progress=False, n_threads=0)
        return [int(number) for number in found[0]]

    return search


def rank_bm25(documents: list[list[str]]) -> Search:
    """Return a search with rank-bm25, with WebShop's constants."""
    import rank_bm25 as library

    index = library.BM25Okapi(documents, k1=0.9, b=0.4)
    return lambda words: np.argsort(-index.get_scores(words), kind="stable")[:NUM_FOUND].tolist()


if __name__ == "__main__":
    main()
