"""Every metric, many runs in a table, runs of several seeds as one line."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil

import pytest
import yaml
from trinity_studio.view.differences import grouped
from trinity_studio.view.notes import read_notes, write_notes
from trinity_studio.view.plots import plot_of
from trinity_studio.view.run import find_runs

from .conftest import TOKEN, explored

LR, SEED = "algorithm.optimizer.lr", "seed"


@pytest.fixture
def sweep(tmp_path):
    """Return a folder of two learning rates with two seeds each."""
    for lr in (0.1, 0.2):
        for seed in (0, 1):
            run = tmp_path / "sweep" / f"lr{lr}-s{seed}"
            (run / "monitor").mkdir(parents=True)
            taskset = {"path": f"{run}/x", "data_selector": {"seed": seed}}
            config = {"name": run.name, "seed": seed, "algorithm": {"optimizer": {"lr": lr}},
                      "buffer": {"explorer_input": {"tasksets": [taskset]}}}  # fmt: skip
            (run / "config.yaml").write_text(yaml.safe_dump(config))
            (run / "run.json").write_text('{"status": "finished"}')
            rows = [explored(step, reward=lr * step + seed) for step in (1, 2)]
            rows += [{"step": step, "role": "explorer", "eval/held/reward/mean@4": value}
                     for step, value in ((0, 0.1), (1, lr + 0.5), (2, lr))]  # fmt: skip
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (run / "monitor" / "metrics.jsonl").write_text(text)
    return tmp_path / "sweep"


def followed(folder):
    runs = dict(enumerate(find_runs([folder])))
    for run in runs.values():
        run.follow()
    return runs


def test_a_metric_that_only_a_workflow_names_is_on_the_page(built, browse) -> None:
    first = {"step": 1, "role": "explorer", "rollout/invalid": 0.14}
    built.metrics(first, first | {"step": 2, "rollout/invalid": 2.2, "mine/part": 1})
    page = browse(built.path)

    said = page.text("metrics")

    assert "rollout/invalid 2.2 first 0.14, last 2.2, between 0.14 and 2.2, 2 values" in said
    assert said.index("chosen") < said.index("rollout/reward/mean") < said.index("mine/part")
    assert "1 of" in page.text("metrics?q=mine")
    assert "rollout/invalid" not in page.text("metrics?q=mine")


def test_runs_that_differ_in_their_seeds_are_one_line_with_a_band(sweep) -> None:
    plot = plot_of("rollout/reward/mean", followed(sweep), by_seed=True)

    means = [line for line in plot.lines if not line.is_single]
    assert [line.label for line in means] == ["lr=0.1 (2 runs)", "lr=0.2 (2 runs)"]
    assert means[0].points == [(1, pytest.approx(0.6)), (2, pytest.approx(0.7))]  # of 0.1 and 1.1
    half = 2**-0.5  # the standard deviation of two values that are 1 apart
    assert means[0].low == [(1, pytest.approx(0.6 - half)), (2, pytest.approx(0.7 - half))]
    assert means[1].high[0] == (1, pytest.approx(0.7 + half))
    assert sum(line.is_single for line in plot.lines) == 4


def test_folders_of_the_runs_themselves_make_no_groups(sweep) -> None:
    assert [list(group) for _, group in grouped(followed(sweep))] == [[0, 1], [2, 3]]


def test_settings_that_follow_from_others_name_no_group_and_are_later_columns(
    sweep, browse
) -> None:
    for run in sweep.iterdir():
        config = yaml.safe_load((run / "config.yaml").read_text())
        lr = config["algorithm"]["optimizer"]["lr"]
        config["algorithm"] = {"clip": f"of {lr}", **config["algorithm"]}
        (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
        (run / "origins.json").write_text(json.dumps({LR: "run.yaml:3", "algorithm.clip": LR}))

    assert [label for label, _ in grouped(followed(sweep))] == [
        "lr=0.1 (2 runs)",
        "lr=0.2 (2 runs)",
    ]
    compared = browse(sweep).text("/compare")
    assert compared.index("algorithm.optimizer.lr 0.1 0.2 1 that follow from it") < compared.index(
        "algorithm.clip of 0.1 of 0.2"
    )
    html = browse(sweep).html("/")
    assert html.index("sort=algorithm.optimizer.lr") < html.index("sort=algorithm.clip")


def test_groups_beside_a_stage_of_another_kind_are_named_by_what_tells_them_apart(sweep) -> None:
    for run in sweep.iterdir():
        config = yaml.safe_load((run / "config.yaml").read_text())
        stage = {"mode": "both", "repeat": 8, "style": "fixed", "tokens": 16}
        if run.name == "lr0.1-s0":
            config["algorithm"], stage = {}, dict.fromkeys(stage, "of sft")
        (run / "config.yaml").write_text(yaml.safe_dump(stage | config, sort_keys=False))

    labels = [label for label, _ in grouped(followed(sweep))]
    assert [label.partition(",")[0] for label in labels] == ["lr=\u2013", "lr=0.1", "lr=0.2"]


def test_the_folder_of_a_sweep_stands_for_its_runs(sweep) -> None:
    names = ["lr0.1-s0", "lr0.2-s1", "not begun yet", "../elsewhere", ".."]
    (sweep / "lr.sweep").mkdir()
    content = {"runs": [{"directory": name} for name in names]}
    (sweep / "lr.sweep" / "sweep.json").write_text(json.dumps(content))

    runs = find_runs([sweep / "lr.sweep"])

    assert [run.directory.name for run in runs] == ["lr0.1-s0", "lr0.2-s1"]
    assert len(find_runs([sweep])) == 4


def test_the_page_that_compares_tells_what_each_group_reached_and_what_differs(
    sweep, browse
) -> None:
    page = browse(sweep)

    said = page.text("/compare?run=0&run=1&run=2&run=3")
    each = page.html("/compare?run=0&run=2&each=1")

    assert "4 runs compared" in said
    assert "lr=0.1 (2 runs) 0.1 0.6 0.7" in said  # last, best, reward
    assert "setting lr=0.1 (2 runs) lr=0.2 (2 runs) algorithm.optimizer.lr 0.1 0.2" in said
    assert "data_selector.seed" not in said
    assert "algorithm.optimizer.lr 0.1 0.2" in page.text("/compare?run=0&run=2&each=1")
    assert "seed 0 1" in page.text("/compare?run=0&run=1&each=1")
    assert 'class="key c1">lr0.2-s0</span>' in each
    assert "<polygon" not in each
    assert page.html("/compare").count("<polygon") == 4  # two charts of two groups


def test_the_table_is_filtered_sorted_and_has_the_settings_that_differ(sweep, browse) -> None:
    page = browse(sweep)

    html = page.html("/?sort=reward&down=1&q=lr%3D0.2")

    assert "2 of 4 runs" in html
    assert html.index("lr0.2-s1</a>") < html.index("lr0.2-s0</a>")
    assert "lr0.1" not in html
    assert "optimizer.lr" in page.html("/")
    assert 'aria-sort="descending"' in html


@pytest.mark.parametrize("order", ["down=0", "down=1"])
def test_the_stages_of_a_run_stand_together_below_it_in_the_order_they_began(
    sweep, browse, order
) -> None:
    for began, (name, reward) in enumerate([("sft", 0.0), ("grpo", 0.25)]):
        stage = sweep / "staged" / name
        shutil.copytree(sweep / "lr0.1-s0", stage)
        os.utime(stage / "config.yaml", (began, began))
        (stage / "run.json").write_text(json.dumps({"status": "finished", "stage": name}))
        row = explored(1, reward=reward)
        (stage / "monitor" / "metrics.jsonl").write_text(json.dumps(row) + "\n")

    html = browse(sweep).html(f"/?sort=reward&{order}")

    found = re.findall(r'scope="rowgroup">([^<]*)<|/run/\d+">([^<]*)</a></td>', html)
    names = [heading or name for heading, name in found]
    own = ["staged", "staged/sft", "staged/grpo"]  # grpo's reward is the run's
    runs = ["lr0.1-s0", *own, "lr0.2-s0", "lr0.1-s1", "lr0.2-s1"]
    backwards = ["lr0.2-s1", "lr0.1-s1", "lr0.2-s0", *own, "lr0.1-s0"]
    assert names == (runs if order == "down=0" else backwards)


def test_the_table_is_kept_as_csv_and_no_cell_is_a_formula(sweep, browse) -> None:
    write_notes(sweep / "lr0.1-s0", tags=["=cmd()"], note="best so far")

    rows = list(csv.DictReader(io.StringIO(browse(sweep).html("/runs.csv?sort=best&down=1"))))

    assert rows[0]["name"].startswith("lr0.2")
    assert (rows[-1]["evaluation"], rows[-1]["best"], rows[-1][LR]) == ("0.1", "0.6", "0.1")
    noted = next(row for row in rows if row["name"] == "lr0.1-s0")
    assert (noted["tags"], noted["note"]) == ("'=cmd()", "best so far")


def test_tags_are_added_and_removed_and_found(sweep, browse) -> None:
    write_notes(sweep / "lr0.1-s0", tags=["good", "old"], note=None)
    notes = write_notes(sweep / "lr0.1-s0", tags=["-old"], note="kept")

    assert (notes.tags, notes.note) == (("good",), "kept") == (
        read_notes(sweep / "lr0.1-s0").tags, "kept"
    )  # fmt: skip
    assert "1 of 4 runs" in browse(sweep).text("/?q=good")
    (sweep / "lr0.1-s0" / "notes.json").write_text("[1")
    assert "4 of 4 runs" in browse(sweep).text("/")


@pytest.mark.parametrize("kind", ["json", "svg", "csv"])
def test_a_chart_is_kept_as_a_file_by_people_and_by_programs(kind, sweep, browse) -> None:
    address = f"/{TOKEN}/series.{kind}?name=rollout/reward/mean&run=0&run=1&by_seed=1"
    answer = browse(sweep).client.get(address)

    assert answer.status_code == 200
    if kind == "json":
        mean = answer.json()["lines"][-1]
        assert (answer.json()["steps"], mean["values"][0]) == ([1, 2], pytest.approx(0.6))
        assert mean["low"][0] == pytest.approx(0.6 - 2**-0.5)
    else:
        assert f'filename="rollout-reward-mean.{kind}"' in answer.headers["content-disposition"]
        begins = {"svg": '<svg xmlns="http://www.w3.org/2000/svg"', "csv": "step,lr0.1-s0"}
        assert answer.text.startswith(begins[kind])


def test_a_run_that_is_not_there_and_a_metric_that_no_run_has_break_no_page(sweep, browse) -> None:
    client = browse(sweep).client

    for path in ("/compare?run=99", "/compare/metrics?run=x", "/compare/samples?run=99"):
        assert client.get(f"/{TOKEN}{path}").status_code == 200
    for kind in ("json", "svg", "csv"):
        assert client.get(f"/{TOKEN}/series.{kind}?name=no&name=none").status_code == 200
