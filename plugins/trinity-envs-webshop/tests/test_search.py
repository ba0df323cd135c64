"""The search by hand."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from trinity.errors import ConfigError
from trinity_envs_webshop.analyzer import raw_words, terms
from trinity_envs_webshop.bm25 import BM25
from trinity_envs_webshop.index_build import IndexBuilder, length_code, length_of_code
from trinity_envs_webshop.shop import Shop, ShopSettings


def an_engine(folder, *texts, ids=None):
    builder = IndexBuilder(folder)
    for text in texts:
        builder.add(text)
    names = ids or [str(number) for number in range(len(texts))]
    return BM25(folder, **builder.finish(), id_of=names.__getitem__)


def test_the_score_is_bm25_with_lucenes_idf(tmp_path):
    engine = an_engine(tmp_path, "red table", "blue chair chair chair")
    # N = 2, df = 1: ln(1 + 1.5 / 1.5); dl 4, average 3, tf 3
    idf = math.log(2)
    norm = 1 / (0.9 * (0.6 + 0.4 * 4 / 3))
    assert engine.search("chair") == [(1, pytest.approx(idf - idf / (1 + 3 * norm), rel=1e-6))]
    twice = engine.search("chair chair")[0][1]
    assert twice == pytest.approx(2 * engine.search("chair")[0][1], rel=1e-6)


def test_equal_scores_go_by_id_and_no_more_than_asked_for(tmp_path):
    ids = [f"B{(number * 7) % 90:02}" for number in range(90)]
    engine = an_engine(tmp_path, *["red table"] * 90, ids=ids)
    found = engine.search("red", limit=50)
    assert [ids[number] for number, _ in found] == sorted(ids)[:50]


def test_scores_are_compared_in_float32_where_float64_would_order_them_otherwise(tmp_path):
    rng = np.random.default_rng(5)
    words = [f"w{number}" for number in range(30)]
    texts = [" ".join(rng.choice(words, rng.integers(3, 60))) for _ in range(2000)]
    ids = [f"B{number:04}" for number in rng.permutation(2000)]
    engine = an_engine(tmp_path, *texts, ids=ids)
    num_ties = 0
    for _ in range(30):
        query = " ".join(rng.choice(words, 6))
        found = engine.search(query, limit=50)
        scores = [score for _, score in found]
        assert all(np.float32(score) == score for score in scores)
        keys = [(-score, ids[number]) for number, score in found]
        assert keys == sorted(keys)
        num_ties += len(scores) - len(set(scores))
    assert num_ties > 0


def test_the_best_are_the_same_as_by_looking_at_all(tmp_path):
    rng = np.random.default_rng(1)
    words = [f"w{number}" for number in range(400)]
    texts = [" ".join(rng.choice(words, rng.integers(1, 90))) for _ in range(60_000 // 20)] * 20
    engine = an_engine(tmp_path, *texts)
    for _ in range(5):
        query = " ".join(rng.choice(words, 5))
        everything = engine.search(query, limit=10**9)
        assert engine.search(query, limit=50) == everything[:50]


def test_parts_put_aside_are_merged_as_one(tmp_path, monkeypatch):
    rng = np.random.default_rng(2)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 50, 30)) for _ in range(103)]
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    whole = an_engine(tmp_path / "one", *texts)
    monkeypatch.setattr("trinity_envs_webshop.index_build._DOCUMENTS_A_PART", 10)
    parts = an_engine(tmp_path / "many", *texts)
    assert not list((tmp_path / "many").glob("part*"))
    for query in ("w1", "w3 w4 w4", "w49 w0 nothing"):
        assert parts.search(query) == whole.search(query)


def test_unknown_words_and_stop_words_find_nothing(tmp_path):
    engine = an_engine(tmp_path, "the table", "")
    assert engine.search("the of") == engine.search("chair") == engine.search("") == []


@pytest.mark.parametrize(
    ("length", "kept"), [(0, 0), (23, 23), (39, 39), (40, 40), (41, 40), (55, 54), (56, 56)]
)
def test_lengths_are_kept_as_lucene_keeps_them(length, kept):
    assert length_of_code(length_code(length)) == kept


def test_length_codes_grow_with_lengths_and_fit_a_byte():
    codes = [length_code(length) for length in range(100_000)]
    assert codes == sorted(codes)
    assert max(codes) < 256


def test_words_of_other_scripts_are_cut_as_lucene_cuts_them():
    assert raw_words("zero\u200bwidth") == ["zero", "width"]
    assert raw_words("日本語テスト") == ["日", "本", "語", "テスト"]
    assert raw_words("#️⃣ 🇺🇸🇩🇪 x") == ["#️⃣", "🇺🇸", "🇩🇪", "x"]
    assert terms("\u0130stanbul \u03a3\u03a3") == ["istanbul", "\u03c3\u03c3"]
    assert [len(word) for word in raw_words("é" * 600)] == [255, 255, 90]


def test_ascii_and_other_texts_are_cut_by_the_same_rules():
    text = "a_b _c_ 1,000.5 x1.y2 don't 3'4 a..b 5;6 a:b U.S.A. (x) -9"
    assert raw_words(text) == raw_words(text + " é")[:-1]


def test_threads_search_as_one_alone(shop):
    queries = [shop.goals[number].instruction_text for number in range(40)]
    alone = [shop.engine.search(query, limit=50) for query in queries]
    found = {}
    threads = [
        threading.Thread(
            target=lambda n=n: found.update(
                {i: shop.engine.search(queries[i], limit=50) for i in range(n, 40, 8)}
            )
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(40)] == alone


class Backwards:
    """A search engine of somebody else's."""

    def __init__(self, catalogue):
        self._catalogue = catalogue

    def search(self, text, *, limit):
        return [(number, 1.0) for number in reversed(range(len(self._catalogue)))][:limit]


def test_a_search_engine_is_named(invented_folder):
    import sys

    sys.modules.setdefault("engine_of_the_tests", sys.modules[__name__])
    named = ShopSettings(search_engine="engine_of_the_tests:Backwards")
    shop = Shop(invented_folder, named)
    assert list(shop.found(["x"], None))[:2] == [119, 118]
    with pytest.raises(ConfigError, match="no search engine named 'lucene'"):
        Shop(invented_folder, ShopSettings(search_engine="lucene"))
