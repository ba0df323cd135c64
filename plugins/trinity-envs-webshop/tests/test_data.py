"""Files, the index beside them, splits and assets."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from trinity.errors import DataError
from trinity_envs_webshop import catalogue_build
from trinity_envs_webshop.assets import fetch, missing
from trinity_envs_webshop.catalogue import Catalogue
from trinity_envs_webshop.goal import Goal
from trinity_envs_webshop.product import Product, product_of
from trinity_envs_webshop.shop import Shop, ShopSettings
from trinity_envs_webshop.splits import splits_of
from trinity_envs_webshop.stream import entries_of, items_of
from trinity_envs_webshop.synthetic import product_entry, write_catalogue

ROOT = Path(__file__).parents[3]


def a_goal(number, *, asin=None):
    return Goal(
        asin=asin or f"B{number}",
        category="",
        query="",
        name="",
        product_category="",
        instruction_text="",
        attributes=["x"],
        price_upper=10.0,
        goal_options=[],
    )


@pytest.mark.parametrize(
    ("pricing", "prices", "shown"),
    [
        ("$12.5", [12.5], "$12.5"),
        ("$19.99 - $27.99", [19.99, 27.99], "$19.99 to $27.99"),
        ("$1,299.00", [1299.0], "$1299.0"),
        ("$1 $2 $3", [1.0, 2.0], "$1.0 to $2.0"),
        ("", [100.0], "$100.0"),
        (None, [100.0], "$100.0"),
        ("12.50", [100.0], "$100.0"),  # the published one fails from here on
        ("$", [100.0], "$100.0"),
        ("$ about 5.5.5", [100.0], "$100.0"),
    ],
)
def test_prices_are_read_as_published_and_unreadable_ones_count_as_missing(pricing, prices, shown):
    product = product_of({"asin": "B", "pricing": pricing}, instructions=None)
    assert (product.prices, product.price_text) == (prices, shown)


def test_what_is_missing_of_a_product_is_empty():
    product = product_of({"asin": "B", "full_description": None}, instructions=None)
    assert (product.title, product.description, product.bullet_points) == ("", "", [])
    assert product.attributes == ["DUMMY_ATTR"]
    assert product_of({"asin": "B"}, instructions={"attributes": []}).attributes == []
    assert product_of({"asin": "B", "small_description": "x"}, instructions=None).bullet_points == [
        "x"
    ]


def test_a_product_survives_its_record():
    product = product_of(product_entry(3)[0], instructions=product_entry(3)[1])
    assert Product.from_line(product.to_line()) == product
    odd = Product(asin="B", title="\ud83d lone \u2028 half")
    assert Product.from_line(odd.to_line()) == odd


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 20])
def test_a_file_is_streamed_whatever_the_chunks(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr("trinity_envs_webshop.stream._CHUNK", chunk)
    entries = [{"a": '}]\\"'}, 123456, [], "é", None, -1.5]
    for indent in (None, 1):
        (tmp_path / "list").write_text(json.dumps(entries, indent=indent, ensure_ascii=False))
        (tmp_path / "table").write_text(json.dumps({"k": entries, "l": 1}, indent=indent))
        assert list(entries_of(tmp_path / "list")) == entries
        assert list(items_of(tmp_path / "table")) == [("k", entries), ("l", 1)]
    (tmp_path / "none").write_text(" [ ] ")
    assert list(entries_of(tmp_path / "none")) == []


@pytest.mark.parametrize("text", ["", "{}", '[{"a": 1}', '[{"a": 1} {"b": 2}]', "[1, 2", "[tru]"])
def test_a_damaged_file_says_where(text, tmp_path):
    (tmp_path / "items_shuffle.json").write_text(text)
    with pytest.raises(DataError, match=r"items_shuffle.json cannot be read: .*, at character \d+"):
        list(entries_of(tmp_path / "items_shuffle.json"))


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("items_shuffle.json", '[{"name": "x"}]', "entry 0, is no product: it has no asin"),
        ("items_shuffle.json", "[3]", "entry 0, is no product"),
        (
            "items_shuffle.json",
            '[{"asin": "B1", "customization_options": {"a": [{}]}}]',
            r"entry 0 \(B1\), cannot be read",
        ),
        ("items_human_ins.json", "[", "items_human_ins.json cannot be read"),
        ("items_human_ins.json", '{"B": [{}]}', "items_human_ins.json cannot be read: KeyError"),
        ("items_ins_v2.json", "[]", "items_ins_v2.json cannot be read: it holds no JSON object"),
    ],
)
def test_wrong_files_are_clear_errors(name, text, problem, tmp_path):
    write_catalogue(tmp_path, num_products=3)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=problem):
        Shop(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    write_catalogue(tmp_path, num_products=3)
    (tmp_path / "items_ins_v2.json").unlink()
    with pytest.raises(DataError, match=r"lacks items_ins_v2.json. Fetch the three files"):
        Shop(tmp_path)


def test_synthetic_goals_need_every_product_in_the_table(tmp_path):
    write_catalogue(tmp_path, num_products=30)
    about = json.loads((tmp_path / "items_ins_v2.json").read_text())
    gone = [about.popitem()[0] for _ in range(2)]
    (tmp_path / "items_ins_v2.json").write_text(json.dumps(about))
    assert len(Shop(tmp_path).goals) > 0
    with pytest.raises(DataError, match="says nothing about 2 products") as caught:
        Shop(tmp_path, ShopSettings(human_goals=False))
    assert gone[0] in str(caught.value)


def test_unusable_and_repeated_products_are_left_out(make_shop):
    shop = make_shop({"asin": "nan"}, {"asin": "B2"}, {"asin": "B2"}, {"asin": "12345678901"})
    assert [shop.catalogue.asin(n) for n in range(len(shop.catalogue))] == ["B2"]
    assert shop.catalogue.number_of("B2") == 0
    for other in ("B1", "B", "B23", "", "x" * 40):
        assert shop.catalogue.number_of(other) is None


def test_an_empty_catalogue_has_no_goals_and_says_so(tmp_path):
    for name, text in (("shuffle", "[]"), ("ins_v2", "{}"), ("human_ins", "{}")):
        (tmp_path / f"items_{name}.json").write_text(text)
    shop = Shop(tmp_path)
    with pytest.raises(DataError, match="the catalogue has no goals of this kind"):
        shop.goals.draw(__import__("random").Random())
    assert shop.engine.search("table", limit=50) == []


def test_the_index_is_built_once_and_again_when_the_files_change(tmp_path, monkeypatch):
    builds = []
    real = catalogue_build._Builder.build
    monkeypatch.setattr(
        catalogue_build._Builder,
        "build",
        lambda self, *given, **named: builds.append(1) or real(self, *given, **named),
    )
    write_catalogue(tmp_path / "a", num_products=20)
    Catalogue(tmp_path / "a")
    Catalogue(tmp_path / "a")
    assert len(builds) == 1
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # copied with its index: other times
    os.utime(tmp_path / "b" / "items_shuffle.json", (1, 1))
    Catalogue(tmp_path / "b")
    assert len(builds) == 1
    text = (tmp_path / "b" / "items_shuffle.json").read_text()
    (tmp_path / "b" / "items_shuffle.json").write_text(text.replace("Deluxe", "Shabby"))
    assert len(Catalogue(tmp_path / "b")) == 20
    assert len(builds) == 2


def test_many_that_come_at_once_build_once(tmp_path, monkeypatch):
    builds = []
    real = catalogue_build._Builder.build
    monkeypatch.setattr(
        catalogue_build._Builder,
        "build",
        lambda self, *given, **named: builds.append(1) or real(self, *given, **named),
    )
    write_catalogue(tmp_path, num_products=20)
    threads = [threading.Thread(target=Catalogue, args=(tmp_path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1


def test_an_index_that_was_not_finished_is_built_anew(tmp_path):
    write_catalogue(tmp_path, num_products=20)
    folder = Catalogue(tmp_path).built
    (folder / "facts.json").unlink()
    (folder.with_name(f"{folder.name}.unfinished")).mkdir()
    assert len(Catalogue(tmp_path)) == 20


def test_the_same_goals_in_the_same_order_whatever_the_seed_of_prices(invented_folder):
    one, other = (Shop(invented_folder, ShopSettings(seed=seed)) for seed in (1, 2))
    assert not np.array_equal(one.prices, other.prices)
    assert [goal.asin for goal in one.goals] == [goal.asin for goal in other.goals]


def test_the_published_splits_are_the_first_500_the_next_1000_and_the_rest():
    splits = splits_of([a_goal(number) for number in range(3000)])
    assert (splits.test, splits.evaluation) == (list(range(500)), list(range(500, 1500)))
    assert splits.train == list(range(1500, 3000))
    assert not splits.is_shrunk


def test_fewer_goals_keep_the_shares():
    splits = splits_of([a_goal(number) for number in range(60)])
    assert (len(splits.test), len(splits.evaluation), len(splits.train)) == (10, 20, 30)
    assert splits.is_shrunk


@pytest.mark.parametrize("is_human", [True, False])
def test_no_goal_that_is_held_out_is_trained_on(is_human, golden_folder):
    goals = Shop(golden_folder, ShopSettings(human_goals=is_human)).goals
    splits = splits_of(goals)

    def wishes(ids):
        return {
            (goals[i].asin, tuple(goals[i].attributes), str(goals[i].goal_options)) for i in ids
        }

    assert not wishes(splits.train) & wishes([*splits.test, *splits.evaluation])
    assert not set(splits.train) & {*splits.test, *splits.evaluation}
    assert len(splits.train) + splits.num_repeated == len(goals) - len(
        [*splits.test, *splits.evaluation]
    )
    if is_human:
        assert splits.num_repeated > 0  # the golden catalogue has such goals


@pytest.mark.parametrize("script", ["examples/grpo_webshop", "scripts/data_prepare"])
def test_the_script_writes_rows_for_each_split(script, golden_folder, tmp_path, capsys):
    import sys
    from unittest import mock

    path = ROOT / script / "get_webshop_data.py"
    given = [str(path), "--data", str(golden_folder), "--output", str(tmp_path / "rows")]
    import runpy

    with mock.patch.object(sys, "argv", given), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(path), run_name="__main__")

    assert ended.value.code == 0
    train = [json.loads(line) for line in (tmp_path / "rows" / "train.jsonl").open()]
    test = [json.loads(line) for line in (tmp_path / "rows" / "test.jsonl").open()]
    assert train[0].keys() == {"task_id", "target"}
    assert [row["task_id"] for row in test] == list(range(24))
    assert not {row["task_id"] for row in train} & {row["task_id"] for row in test}
    assert json.loads((tmp_path / "rows" / "dataset_dict.json").read_text())["splits"][0] == "train"
    assert "fewer than 3,000 goals: the same shares" in capsys.readouterr().out


def test_assets_are_checked_generated_and_built(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path / "shop"))
    assert "is no folder with WebShop's data" in missing()
    fetch(generate="25")
    assert missing() is None
    assert len(Catalogue(tmp_path / "shop")) == 25
    with pytest.raises(DataError, match=r"already holds items_shuffle\.json and"):
        fetch(generate=3)
    write_catalogue(tmp_path / "other", num_products=3)
    assert "the index of" in missing(data=str(tmp_path / "other"))
    fetch(data=str(tmp_path / "other"))
    assert missing(data=str(tmp_path / "other")) is None
    with pytest.raises(DataError, match="--generate is 'ten'"):
        fetch(data=str(tmp_path / "third"), generate="ten")


def test_generated_products_are_all_different_and_the_same_again():
    entries = [product_entry(number)[0] for number in range(5000)]
    assert len({entry["asin"] for entry in entries}) == 5000
    assert entries[17] == product_entry(17)[0]
    assert any(" - $" in entry["pricing"] for entry in entries)
    assert {entry["category"] for entry in entries} == {
        *("beauty", "electronics", "garden", "fashion", "grocery"),
    }


def test_importing_the_plugin_loads_nothing_heavy():
    assert importlib.util.find_spec("trinity_envs_webshop.plugin")
    import subprocess
    import sys

    code = (
        "import sys, trinity_envs_webshop.plugin; "
        "print([m for m in ('numpy', 'rapidfuzz', 'regex', 'torch') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
