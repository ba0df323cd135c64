"""Every problem of a file is told at once: parse, variables, keys, names, paths, numbers, rows."""

from __future__ import annotations

import json

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.explanation import load_or_explain
from trinity.common.config.problem import listed
from trinity.errors import ConfigError

TASKSET = "buffer.explorer_input.taskset"


def told(path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as raised:
        load_or_explain(path, overrides=overrides, env={})
    return str(raised.value)


def found(path, machine, *overrides: str) -> list[str]:
    config = resolve(load_config(path, overrides=overrides), machine)
    return listed(p for p in check(config, machine) if p.severity != "notice")


def test_all_kinds_of_problems_are_told_together(
    a_file, a_model, some_tasks, builtin_only, golden, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = a_file(f"""
    mode: both
    log: {{level: "INFO}}
    model: {{model_path: {a_model}, max_model_len: 64}}
    monitor:
      monitor_type: [
    algorithm:
      algorithm_type: grpo
      repeat_times: 4
      policy_loss_fn: pppo
    checkpoint_root_dir: ${{oc.env:NOWHERE}}
    trainer: {{save_interval: often, max_token_len_per_gpu: 16}}
    buffer:
      batch_size: 2
      bach_size: 2
      explorer_input:
        taskset:
          path: {some_tasks}
          default_workflow_type: math_workflow
          format: {{prompt_key: qestion, response_key: answer}}
        eval_tasksets: [{{path: ./no/such.jsonl, default_workflow_type: math_workflow}}]
    """)

    golden(told(path), "config_every_problem", TMP=tmp_path)


def test_an_unset_variable_hides_nothing_and_what_it_would_give_is_not_guessed(
    a_run, builtin_only
) -> None:
    path = a_run("monitor: {monitor_type: jsonnl}")
    text = told(path, f"{TASKSET}.path=${{oc.env:TASKS}}", "model.model_path=${oc.env:MODEL}")

    assert "has 3 problems" in text
    assert "variable TASKS is not set" in text
    assert "variable MODEL is not set" in text
    assert "no monitor named 'jsonnl'" in text


def test_arithmetic_on_a_number_that_is_missing_is_left_alone(a_run, builtin_only) -> None:
    settings = ("trainer.max_token_len_per_gpu=16", "model.max_response_tokens=many")

    text = told(a_run(), *settings)

    assert "has 1 problem" in text
    assert "max_response_tokens" in text


def test_an_anchor_of_a_broken_section_breaks_no_other(a_file) -> None:
    text = told(a_file("model: &m {model_path: a\nlog: {level: *m}\nseed: -1\n"))

    assert "run.yaml:2" in text or "run.yaml:1" in text
    assert "undefined alias" not in text


@pytest.mark.parametrize("name", ["prompt_key", "response_key"])
def test_a_key_that_no_row_has_is_told_with_its_place(a_run, cpu, builtin_only, name) -> None:
    (problem,) = found(a_run(), cpu, f"{TASKSET}.format.{name}=qestion")

    assert problem.startswith(f"command line: {TASKSET}.format.{name}: ")
    assert "row 1, has no key 'qestion'" in problem
    assert "Did you mean 'question'?" in problem


def test_a_key_that_one_row_lacks_is_told(a_run, cpu, builtin_only, some_tasks) -> None:
    with some_tasks.open("a") as file:
        file.write('{"question": "1+1"}\n')

    (problem,) = found(a_run(), cpu)

    assert f"{some_tasks}, row 11, has no key 'answer'" in problem


def test_rows_that_a_workflow_reads_by_itself_need_no_default_key(a_run, cpu, builtin_only) -> None:
    keys = (f"{TASKSET}.format.prompt_key=prompt", f"{TASKSET}.format.response_key=response")

    assert found(a_run(), cpu, *keys) == []


def test_a_key_may_lead_into_a_column(a_run, cpu, builtin_only, some_tasks) -> None:
    some_tasks.write_text('{"question": "1+1", "reward_model": {"truth": "2"}}\n')

    assert found(a_run(), cpu, f"{TASKSET}.format.response_key=reward_model.truth") == []
    (problem,) = found(a_run(), cpu, f"{TASKSET}.format.response_key=reward_model.answer")
    assert "has no key 'reward_model.answer'" in problem


def test_a_key_of_names_that_no_row_has_is_told(a_run, cpu, builtin_only) -> None:
    settings = (f"{TASKSET}.format.workflow_key=how", f"{TASKSET}.default_workflow_type=null")

    (problem,) = found(a_run(), cpu, *settings)

    assert f"{TASKSET}.format.workflow_key" in problem


def in_format(rows: list[dict[str, str]], path):
    if path.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".json", ".parquet"])
def test_the_keys_of_other_formats_are_looked_at_too(
    a_run, cpu, builtin_only, tmp_path, ending
) -> None:
    path = in_format([{"question": "1+1", "answer": "2"}], tmp_path / f"rows{ending}")
    place = f"{TASKSET}.path={path}"

    assert found(a_run(), cpu, place) == []
    (problem,) = found(a_run(), cpu, place, f"{TASKSET}.format.prompt_key=qestion")
    assert "has no key 'qestion'" in problem


def test_a_folder_of_splits_is_looked_at_by_its_split(a_run, cpu, builtin_only, tmp_path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"question": "1", "answer": "1"}\n')
    (folder / "test.jsonl").write_text('{"q": "1", "answer": "1"}\n')

    assert found(a_run(), cpu, f"{TASKSET}.path={folder}") == []
    (problem,) = found(a_run(), cpu, f"{TASKSET}.path={folder}", f"{TASKSET}.split=test")
    assert "test.jsonl, row 1, has no key 'question'" in problem


def test_keys_of_supervised_rows_are_told_at_the_key(a_file, a_model, tmp_path, cpu) -> None:
    rows = tmp_path / "sft.jsonl"
    rows.write_text('{"prompt": "a", "answer": "b"}\n')
    path = a_file(f"""
    mode: train
    model: {{model_path: {a_model}}}
    algorithm: {{algorithm_type: sft}}
    buffer:
      train_batch_size: 4
      trainer_input:
        experience_buffer:
          storage_type: file
          path: {rows}
          format: {{prompt_type: plaintext}}
    """)

    (problem,) = found(path, cpu)

    place = "buffer.trainer_input.experience_buffer.format.response_key"
    assert problem.startswith(f"{path}:11: {place}: ")


def test_a_file_that_is_no_yaml_says_that_alone(a_file) -> None:
    """What is missing may stand below the mistake."""
    said = told(a_file("project: a\nname: [b\nmode: both\n"))

    assert "has 1 problem" in said
    assert "is no YAML" in said


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"question": null, "answer": "2"}', "row 11, has null in 'question'"),
        ('{"question": "", "answer": "2"}', "row 11, has an empty text in 'question'"),
        ('{"question": "1+1", "answer": null}', "row 11, has null in 'answer'"),
    ],
)
def test_a_null_prompt_an_empty_one_and_a_null_answer_are_told(
    a_run, cpu, builtin_only, some_tasks, row, said
) -> None:
    with some_tasks.open("a") as file:
        file.write(f"{row}\n")

    config = resolve(load_config(a_run()), cpu)

    assert f"{some_tasks}, {said}" in "\n".join(listed(check(config, cpu)))
