"""``trinity compare``: arms, intervals and verdicts, with numbers by hand."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from trinity.runtime.record.rundir import with_stages
from trinity_lab.run_folders import runs_inside

from .conftest import METRIC, write_origins

NEWCOMER = [("ppo", 0, 0.367), ("ppo", 1, 0.328), ("gspo", 0, 0.250), ("gspo", 1, 0.372)]


@pytest.fixture
def newcomers_runs(a_run):
    return [
        a_run(f"{loss}-{seed}", value, seed=seed, policy_loss_fn=loss)
        for loss, seed, value in NEWCOMER
    ]


def test_the_four_runs_of_a_newcomer_are_not_distinguishable(call, newcomers_runs) -> None:
    said = call("compare", *newcomers_runs).stdout

    assert "policy_loss_fn=gspo against policy_loss_fn=ppo: -0.03" in said
    assert "not distinguishable: p = 1.000" in said
    assert "so few seeds cannot show any difference: their smallest p is 0.333" in said
    assert "would need about 48 seeds an arm" in said
    assert "power 80 %" in said
    assert "from 2 seeds an arm is itself unreliable: 95 % range 13 to 1," in said
    assert "algorithm.policy_loss_fn: ppo | gspo" in said
    assert "runs/" not in said  # paths into the run's own directory are no difference


def test_settings_that_nobody_wrote_are_only_counted(call, a_run) -> None:
    ppo = a_run("a", 0.4, clip_low=0.2, clip_high=0.2, policy_loss_fn="ppo", lr=0.1)
    gspo = a_run("b", 0.5, clip_low=0.0003, clip_high=0.0004, policy_loss_fn="gspo", lr=0.2)
    follow = {"clip_low": "policy_loss_fn gspo", "clip_high": "policy_loss_fn gspo"}
    write_origins(ppo, **follow, policy_loss_fn="default", lr="run.yaml:3")
    write_origins(gspo, **follow, policy_loss_fn="command line", lr="run.yaml:3")

    said = call("compare", ppo, gspo).stdout

    assert "lr=0.2 against lr=0.1" in said  # the first that was written, and not clip_high
    assert said[said.index("settings that differ") :].splitlines() == [
        "settings that differ",
        "  algorithm.lr: 0.1 | 0.2",
        "  algorithm.policy_loss_fn: ppo | gspo",
        "  and 2 that follow from them (--json)",
    ]
    found = json.loads(call("compare", ppo, gspo, "--json").stdout)
    assert found["derived"] == ["algorithm.clip_high", "algorithm.clip_low"]
    assert found["arms"][1]["settings"]["algorithm.clip_low"] == 0.0003


def test_a_short_name_is_not_looked_for_within_words(call, a_run) -> None:
    runs = [a_run("a", 0.4, precision="float32"), a_run("b", 0.5, precision="float32")]

    said = call("compare", *runs).stdout

    assert "settings that differ" not in said


def test_settings_that_nobody_wrote_are_listed_where_no_others_differ(call, a_run) -> None:
    runs = [a_run("a", 0.4, precision="float32"), a_run("b", 0.5, precision="bfloat16")]
    for run in runs:
        write_origins(run, precision="machine")

    said = call("compare", *runs).stdout

    assert "  algorithm.precision: float32 | bfloat16" in said
    assert "that follow" not in said


def test_seeds_of_runs_with_stages_are_one_arm(call, a_run) -> None:
    """A stage reads the model of the one before it, in the run's own folder."""
    runs = [
        a_run(
            f"{loss}-{seed}", 0.4, seed=seed, policy_loss_fn=loss, model=f"runs/{loss}-{seed}/sft"
        )
        for loss in ("ppo", "gspo")
        for seed in range(2)
    ]
    for run in runs:
        config = yaml.safe_load((run / "config.yaml").read_text())
        (run / "config.yaml").write_text(yaml.safe_dump(config | {"name": f"{run.name}/grpo"}))

    arms = json.loads(call("compare", *runs, "--json").stdout)["arms"]

    assert [(arm["label"], len(arm["runs"])) for arm in arms] == [
        ("policy_loss_fn=ppo", 2),
        ("policy_loss_fn=gspo", 2),
    ]


def test_a_run_that_is_given_by_several_paths_is_one_seed(call, a_run, tmp_path) -> None:
    first, second = a_run("a", 0.4), a_run("b", 0.5, seed=1)
    (tmp_path / "link").symlink_to(first)
    others = (first, tmp_path / "link", first / ".." / first.name)

    (arm,) = json.loads(call("compare", first, second, *others, "--json").stdout)["arms"]

    assert [run["directory"] for run in arm["runs"]] == [str(first), str(second)]


def test_of_many_arms_the_best_is_compared_with_the_others(call, a_run) -> None:
    runs = [a_run(f"r{at}", value, lr=at) for at, value in enumerate((0.1, 0.2, 0.5, 0.3, 0.4))]

    said = call("compare", *runs).stdout

    assert said.count(" against ") == 4
    assert all(f"lr={at}" in said for at in range(5))
    assert "--json has all 10 pairs" in said
    assert len(json.loads(call("compare", *runs, "--json").stdout)["differences"]) == 10


def test_arms_far_apart_are_distinguishable(call, a_run) -> None:
    runs = [
        a_run(f"{loss}-{seed}", base + seed / 100, seed=seed, policy_loss_fn=loss)
        for loss, base in (("ppo", 0.2), ("gspo", 0.5))
        for seed in range(5)
    ]

    found = json.loads(call("compare", *runs, "--json").stdout)

    [pair] = found["differences"]
    assert [arm["mean"] for arm in found["arms"]] == pytest.approx([0.22, 0.52])
    assert pair["value"] == pytest.approx(0.3)
    assert pair["p"] == pytest.approx(2 / 252)
    assert pair["is_distinguishable"]
    assert pair["interval"] == pytest.approx([0.283, 0.317], abs=0.005)


@pytest.mark.parametrize("command", ["compare", "export", "eval", "rescore"])
def test_a_folder_of_runs_is_not_taken_for_one_of_them(command, call, a_run, tmp_path) -> None:
    for name, value in (("a", 0.25), ("b", 0.75)):
        run = a_run(name, value)
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "stage": ""}, indent=2))
    options = {
        "export": ["--to", tmp_path / "to"],
        "eval": ["--data", tmp_path / "a/run.json"],
        "rescore": ["--reward", "accuracy_reward"],
    }

    result = call(command, tmp_path, *options.get(command, []))

    assert result.exit_code == 1
    assert f"has the runs {tmp_path / 'a'}, {tmp_path / 'b'}. Name" in str(result.exception)


def test_runs_that_are_not_finished_are_left_out_and_named(call, a_run) -> None:
    runs = [a_run("a", 0.4), a_run("b", 0.9, seed=1, status="failed")]

    said = call("compare", *runs).stdout

    assert "0.400" in said
    assert "0.900" not in said
    assert "b is not finished and left out" in said
    assert "0.650" in call("compare", *runs, "--unfinished").stdout


def test_three_arms_are_corrected_for_the_number_of_pairs(call, a_run) -> None:
    runs = [
        a_run(f"{loss}-{seed}", base + seed / 100, seed=seed, policy_loss_fn=loss)
        for loss, base in (("a", 0.1), ("b", 0.3), ("c", 0.5))
        for seed in range(4)
    ]

    found = json.loads(call("compare", *runs, "--json").stdout)

    assert [pair["p"] for pair in found["differences"]] == pytest.approx([3 * 2 / 70] * 3)


def test_the_json_of_equal_means_is_json(call, a_run) -> None:
    runs = [
        a_run(f"{loss}-{seed}", 0.2 + seed / 10, seed=seed, policy_loss_fn=loss)
        for loss in ("ppo", "gspo")
        for seed in range(2)
    ]

    text = call("compare", *runs, "--json").stdout

    [pair] = json.loads(text, parse_constant=pytest.fail)["differences"]
    assert pair["seeds_needed"] == {"count": None, "range": None}
    assert "no number of seeds tells them apart" in call("compare", *runs).stdout


def write_metrics(run, name: str, values) -> None:
    """Write the metric of some train steps."""
    rows = [{"step": step, "role": "trainer", name: one} for step, one in enumerate(values, 1)]
    (run / "monitor").mkdir()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "monitor/metrics.jsonl").write_text(text)


def test_small_values_keep_three_digits(call, a_run) -> None:
    runs = [a_run("a", 0.4), a_run("b", 0.4, seed=1), a_run("c", 0.4, loss="gspo")]
    for run, value in zip(runs, (7e-4, 6.9e-4, 2.25e-8), strict=True):
        write_metrics(run, "actor/lr", [value])

    said = call("compare", *runs, "--metric", "actor/lr").stdout

    assert "2      0.000695  0.00069 to 0.0007  0.0007 0.00069\n" in said
    assert re.search(r"1 +2.25e-08 +none +2.25e-08\n", said)
    assert ": -0.000695 (" in said


def test_a_training_metric_is_told_as_the_mean_of_the_last_steps(call, a_run) -> None:
    run = a_run("a", 0.4)
    write_metrics(run, "actor/loss", range(12))

    said = call("compare", run, "--metric", "actor/loss").stdout

    assert said.startswith("actor/loss, mean of the last 10 steps of each run;")
    assert " 6.500\n" in said  # of 2 to 11


@pytest.mark.parametrize("side", ["train", "explore"])
def test_an_included_run_that_is_not_finished_is_told_with_its_step(call, a_run, side) -> None:
    run = a_run("a", 0.4, status="interrupted")
    record = json.loads((run / "run.json").read_text())
    record |= {"mode": side, "train_steps": 0, f"{side}_steps": 12}
    (run / "run.json").write_text(json.dumps(record))

    said = call("compare", run, "--unfinished").stdout

    assert f"note: {run} is not finished: interrupted after {side} step 12" in said


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_run_whose_value_is_no_number_is_refused(call, a_run, value) -> None:
    runs = [a_run("a", 0.4), a_run("b", value, loss="gspo"), a_run("c", value, loss="ppo")]

    said = str(call("compare", *runs).exception)

    assert said == (
        f"{METRIC} is no finite number in {runs[1]} ({value}), {runs[2]} ({value}), so nothing can "
        f"be said of it. Leave these runs out, or name another --metric."
    )


@pytest.mark.parametrize("given", ["reward", "rollout/reward"])
def test_a_metric_without_its_end_is_asked_back(call, a_run, given) -> None:
    run = a_run("a", 0.4)
    write_metrics(run, "rollout/reward/mean", [0.5])

    said = str(call("compare", run, "--metric", given).exception)

    named = "rollout/reward/mean" if "/" in given else f"{METRIC}, rollout/reward/mean"
    assert said == f"{run}: no metric is named {given!r} alone. Name one of: {named}."


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--metric", "rollout/rewrd"], "rollout/rewrd"), (["missing"], "no run directory")],
)
def test_what_cannot_be_compared_is_said(call, a_run, arguments, says) -> None:
    result = call("compare", a_run("a", 0.4), *arguments)

    assert says in str(result.exception)


def test_a_metric_that_no_run_has_is_answered_with_those_that_it_has(call, a_run) -> None:
    run = a_run("a", 0.4)
    names = [f"actor/part_{number}" for number in range(40)]
    (run / "monitor").mkdir(exist_ok=True)
    row = json.dumps({"step": 1, "role": "trainer"} | dict.fromkeys(names, 0.0))
    (run / "monitor/metrics.jsonl").write_text(row + "\n")

    said = str(call("compare", run, "--metric", "nothere").exception)

    assert "no metric named 'nothere'. Known: actor/part_0, " in said
    assert "trinity view" not in said


def test_a_folder_with_a_foreign_record_two_levels_down_holds_no_run(tmp_path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "run.json").write_text("{}")

    assert runs_inside(tmp_path) == ""
    assert with_stages(tmp_path / "x") == [tmp_path / "x"]
