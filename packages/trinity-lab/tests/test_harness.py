"""``trinity eval --tasks`` with the real lm-eval, on a task file without a network."""

from __future__ import annotations

import json

import pytest
from trinity_lab.harness import keep_results, scores_of_results
from trinity_lab.statistics import Interval

TASK = """
task: starts_with
dataset_path: json
dataset_kwargs:
  data_files: {{test: {rows}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["{{{{right}}}}", "{{{{wrong}}}}"]
doc_to_target: 0
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
"""


def test_filters_are_named_and_what_is_no_number_is_left_out() -> None:
    found = scores_of_results(
        {
            "gsm8k": {
                "alias": "gsm8k",
                "exact_match,strict-match": 0.25,
                "exact_match_stderr,strict-match": 0.05,
                "exact_match,flexible-extract": 0.5,
                "exact_match_stderr,flexible-extract": "N/A",
            }
        }
    )

    strict, flexible = found
    assert (strict.name, strict.value) == ("gsm8k exact_match (strict-match)", 0.25)
    assert strict.interval == Interval(low=0.25 - 1.959964 * 0.05, high=0.25 + 1.959964 * 0.05)
    assert (flexible.name, flexible.interval) == ("gsm8k exact_match (flexible-extract)", None)


def test_the_results_of_each_call_are_kept_in_a_folder_of_their_own(tmp_path) -> None:
    folders = [
        keep_results({"results": number, "samples": {"a/b": [{"n": number}]}}, tmp_path / "gpt2")
        for number in range(3)
    ]

    assert [one.name for one in folders] == ["gpt2", "gpt2-2", "gpt2-3"]
    for number, folder in enumerate(folders):
        assert json.loads((folder / "results.json").read_text()) == {"results": number}
        assert json.loads((folder / "samples-a-b.jsonl").read_text()) == {"n": number}


def test_without_data_and_tasks_there_is_nothing_to_do(call) -> None:
    ended = call("eval", "some/model")

    assert ended.exit_code == 2
    assert "--data" in ended.stderr


@pytest.fixture
def tiny_model(tmp_path):
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path / "model")


@pytest.fixture
def task_files(tmp_path):
    pytest.importorskip("lm_eval", reason="pip install 'trinity-lab[lm-eval]'")
    rows = tmp_path / "rows.jsonl"
    lines = [{"question": f"{n} =", "right": str(n), "wrong": "x"} for n in range(6)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "starts_with.yaml").write_text(TASK.format(rows=rows))
    return folder


def test_a_task_file_without_a_network_is_a_column_of_the_table(
    call, tiny_model, task_files, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    arguments = ("eval", tiny_model, "--tasks", "starts_with", "--task-files", task_files)
    ended = call(*arguments, "--to", tmp_path / "out", "--json")

    assert ended.exit_code == 0, ended.output
    [model] = json.loads(ended.stdout[ended.stdout.index("{\n") :])["models"]
    score = model["scores"]["starts_with acc"]
    kept = tmp_path / "out" / "eval" / f"lm-eval-{tiny_model.name}"
    lines = (kept / "samples-starts_with.jsonl").read_text().splitlines()
    samples = [json.loads(one) for one in lines]
    assert len(samples) == 6
    assert score["value"] == pytest.approx(sum(one["acc"] for one in samples) / 6)
    assert score["interval"]["low"] <= score["value"] <= score["interval"]["high"]
    assert json.loads((kept / "results.json").read_text())["results"]["starts_with"]
    shown = call(*arguments, "--to", tmp_path / "out", "--limit", 2).stdout
    again = kept.with_name(f"{kept.name}-2")
    assert len((again / "samples-starts_with.jsonl").read_text().splitlines()) == 2
    assert "starts_with acc" in shown
    assert "starts_with (lm-eval): 95 % intervals, 1.96 standard errors" in shown


def test_a_task_that_does_not_exist_is_said_before_a_model_is_loaded(call, task_files) -> None:
    ended = call("eval", "some/model", "--tasks", "starts_wiht", "--task-files", task_files)

    assert "lm-eval has no task 'starts_wiht'" in str(ended.exception)
