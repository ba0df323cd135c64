"""Where the time of a step went, worked out by hand."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner


def write(folder, rows) -> None:
    (folder / "monitor").mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "monitor" / "metrics.jsonl").write_text(lines)


def a_step(step, *, scale=1.0, beside=None):
    explorer = {"time/engine_s": 4, "time/workflow_s": 1, "time/rollout_s": 6}
    trainer = {"time/sample_s": 0.5, "time/forward_backward_s": 2, "time/train_s": 3}
    sync = {"time/sync_s": 0.5, "time/step_s": 10}
    if beside is not None:
        explorer["time/trained_beside_s"] = beside
    named = (("explorer", explorer), ("trainer", trainer), ("synchronizer", sync))
    return [
        {name: value * scale for name, value in row.items()} | {"step": step, "role": role}
        for role, row in named
    ]


def call(*arguments):
    from trinity.cli.main import app

    return CliRunner().invoke(app, ["perf", *map(str, arguments)])


def test_a_step_is_its_sides_and_each_side_its_rooms(tmp_path) -> None:
    rows = [*a_step(1, scale=100.0), *a_step(2), *a_step(3)]
    rows.append({"time/eval_s": 7, "time/rollout_s": 99, "step": 3, "role": "explorer"})
    write(tmp_path, rows)

    lines = call(tmp_path, "--skip", 1).output.splitlines()

    seen = [" ".join(line.split()) for line in lines[1:]]
    assert lines[0] == f"{tmp_path}: 2 steps, 10000.0 ms each"
    assert seen == [
        "explore 6000.0 ms 60.0%",
        "engines the model's forwards and sampling 4000.0 ms 40.0%",
        "runners workflows: prompts, tools, rewards 1000.0 ms 10.0%",
        "explorer rest: rollouts to disk, operators, waiting 1000.0 ms 10.0%",
        "train 3000.0 ms 30.0%",
        "buffer sample: out of the buffer 500.0 ms 5.0%",
        "trainer forward, backward: model and losses 2000.0 ms 20.0%",
        "trainer rest: the batch, metrics, samples 500.0 ms 5.0%",
        "sync 500.0 ms 5.0%",
        "synchronizer weights 500.0 ms 5.0%",
        "other checkpoints, hooks, waiting 500.0 ms 5.0%",
        "beside the steps: 7000.0 ms an evaluation",
    ]


def test_what_is_trained_beside_an_explore_step_is_counted_once(tmp_path) -> None:
    write(tmp_path, a_step(1, beside=2.0))

    (run,) = json.loads(call(tmp_path, "--skip", 0, "--json").output)["runs"].values()

    assert (run["beside_s"], run["other_s"]) == (2.0, 2.5)  # 10 - (6 + 3 + 0.5 - 2)


def test_a_stage_that_only_trains_has_its_train_steps(tmp_path) -> None:
    write(tmp_path / "sft", [row for row in a_step(1) if row["role"] == "trainer"])

    lines = call(tmp_path, "--skip", 0).output.splitlines()

    assert lines[0] == f"{tmp_path / 'sft'}: 1 steps, 3000.0 ms each"


def test_the_published_form_reads_a_run_too(tmp_path) -> None:
    write(tmp_path, a_step(1))

    assert "10000.0 ms each" in call("view", "-r", tmp_path, "--skip", 0).output


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["run", "-r", "x"], "(mode explore for the explorer alone)"),
        (["nothing"], "there is no folder nothing. Name a run directory"),
        (["."], "no monitor/"),
    ],
)
def test_what_cannot_be_read_is_said_with_what_to_do(words, part, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert part in str(call(*words).exception)
