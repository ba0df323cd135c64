from __future__ import annotations

import pytest
from trinity.common.config import Config, TasksetConfig, load_config
from trinity.errors import ConfigError


def test_a_number_in_scientific_notation_is_a_number(a_file) -> None:
    config = load_config(a_file("algorithm: {optimizer: {lr: 5e-6}}"))

    assert config.algorithm.optimizer.lr == 0.000005


def test_a_variable_comes_from_the_mapping_that_is_given(a_file, monkeypatch) -> None:
    monkeypatch.setenv("MODEL_HERE", "from the process")
    path = a_file("model: {model_path: '${oc.env:MODEL_HERE,none}'}")

    assert load_config(path, env={"MODEL_HERE": "given"}).model.model_path == "given"
    assert load_config(path, env={}).model.model_path == "none"
    assert load_config(path).model.model_path == "from the process"


def test_a_variable_that_holds_a_number_fits_a_number(a_file) -> None:
    config = load_config(a_file("cluster: {node_num: '${oc.env:NODES,2}'}"), env={})

    assert config.cluster.node_num == 2


def test_a_key_can_refer_to_another(a_file) -> None:
    config = load_config(
        a_file("""
        model: {max_model_len: 96}
        trainer: {max_token_len_per_gpu: "${model.max_model_len}"}
        """)
    )

    assert config.trainer.max_token_len_per_gpu == 96


def test_a_setting_of_the_command_line_wins_over_the_file_and_is_typed_as_yaml(a_file) -> None:
    path = a_file("""
    buffer:
      batch_size: 2
      explorer_input:
        eval_tasksets: [{path: a}, {path: b}]
    """)

    config = load_config(
        path,
        overrides=[
            "buffer.batch_size=8",
            "algorithm.optimizer.lr=1e-4",
            "buffer.explorer_input.eval_tasksets.1.path=c",
            "buffer.explorer_input.taskset.workflow_args={max_turns: 3}",
        ],
    )

    assert config.buffer.batch_size == 8
    assert config.algorithm.optimizer.lr == 0.0001
    assert [t.path for t in config.buffer.explorer_input.eval_tasksets] == ["a", "c"]
    taskset = config.buffer.explorer_input.taskset
    assert taskset is not None
    assert taskset.workflow_args == {"max_turns": 3}


def test_a_reference_follows_a_setting_of_the_command_line(a_file) -> None:
    path = a_file("""
    model: {max_model_len: 96}
    trainer: {max_token_len_per_gpu: "${model.max_model_len}"}
    """)

    config = load_config(path, overrides=["model.max_model_len=128"])

    assert config.trainer.max_token_len_per_gpu == 128


def test_older_names_of_keys_are_taken_with_a_warning(a_file, caplog) -> None:
    path = a_file("""
    buffer:
      explorer_input:
        task_set:
          default_workflow: math_workflow
    """)

    config = load_config(path)

    taskset = config.buffer.explorer_input.taskset
    assert taskset is not None
    assert taskset.default_workflow_type == "math_workflow"
    assert "task_set" in caplog.text
    assert f"({path}:4)" in caplog.text


def test_words_of_closed_sets_are_read_in_any_case_and_by_their_older_names(a_file) -> None:
    config = load_config(
        a_file("""
        mode: BOTH
        synchronizer: {sync_method: Online, sync_style: dynamic_by_explorer}
        trainer: {prefix_sharing: off}
        """)
    )

    assert config.mode == "both"
    assert config.synchronizer.sync_method == "nccl"
    assert config.synchronizer.sync_style == "explorer_driven"
    assert config.trainer.prefix_sharing == "off"


def test_an_empty_section_has_its_defaults(a_file) -> None:
    config = load_config(a_file("explorer:\ntrainer:\n  name: t\n"))

    assert config.explorer.runner_per_model == 8


def test_every_problem_of_a_file_is_in_one_error(a_file, golden, tmp_path) -> None:
    path = a_file("""
    mode: both
    batch_size: 4
    buffer:
      bach_size: 4
      total_epochs: two
      explorer_input:
        taskset:
          format: {promt_key: q}
    explorer: {max_retry_times: true}
    stages: [{mode: train, buffr: {}}]
    """)

    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides=["log.levle=INFO", "nonsense", "stages.4.mode=train"])

    golden(str(caught.value), "config_unknown_keys_and_wrong_types", TMP=tmp_path)


def test_a_variable_that_is_not_set_is_named_with_its_place(a_file, golden, tmp_path) -> None:
    path = a_file("model:\n  model_path: ${oc.env:TRINITY_MODEL_PATH}\n")

    with pytest.raises(ConfigError) as caught:
        load_config(path, env={"TRINITY_MODEL": "x"})

    golden(str(caught.value), "config_missing_variable", TMP=tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch, golden) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError) as caught:
        load_config("run.yaml")

    golden(str(caught.value), "config_missing_file", TMP=tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("buffer: {batch_size: 4\nmode: both", "run.yaml:2: this line: is no YAML"),
        ("just a sentence", "run.yaml:1: the file: holds no settings."),
        ("", "run.yaml:1: the file: holds no settings."),
        ("mode: both\nmode: train", "run.yaml:2: mode: is given twice, in line 1 too."),
        ("name: ${no.such.key}", "run.yaml:1: name: cannot be worked out"),
    ],
)
def test_what_is_no_configuration_is_refused_with_its_line(a_file, text, expected) -> None:
    with pytest.raises(ConfigError, match="problem") as caught:
        load_config(a_file(text))

    assert expected in str(caught.value)


def test_sections_can_be_set_and_replaced_from_python_and_are_checked() -> None:
    config = Config()
    judge = object()

    config.buffer.batch_size = 4
    config.buffer.explorer_input.taskset = TasksetConfig(path="x", workflow_args={"judge": judge})

    assert config.buffer.explorer_input.taskset.workflow_args["judge"] is judge
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        config.buffer.batch_size = 0
    with pytest.raises(ValueError, match="no attribute"):
        config.buffer.bach_size = 4  # type: ignore[attr-defined]


def test_the_older_name_of_the_tokens_of_a_micro_batch_is_understood(a_file, caplog) -> None:
    config = load_config(a_file("trainer: {ppo_max_token_len_per_gpu: 256}"))

    assert config.trainer.max_token_len_per_gpu == 256
    assert "write max_token_len_per_gpu" in caplog.text


def test_a_value_of_a_stage_changes_that_value_alone(a_file) -> None:
    """The stage takes the rest of the section from above, as before."""
    path = a_file("""
    buffer: {batch_size: 8, total_steps: 250}
    stages: [{stage_name: sft, mode: train}, {stage_name: grpo, mode: both}]
    """)

    config = load_config(path, overrides=["stages.1.buffer.total_steps=10"])

    assert config.stages[1].buffer.total_steps == 10
    assert config.stages[1].buffer.batch_size == 8
    assert config.buffer.total_steps == 250


def test_an_unknown_key_of_the_command_line_is_not_blamed_on_the_file(a_file) -> None:
    path = a_file("algorithm: {algorithm_type: grpo}")

    with pytest.raises(ConfigError, match=r"command line: algorithm\.optimiser: unknown key"):
        load_config(path, overrides=["algorithm.optimiser.lr=1"])


def test_a_copy_that_a_run_keeps_is_no_input_where_its_secrets_are_masked(tmp_path) -> None:
    (tmp_path / "config.yaml").write_text(
        "mode: both\nmonitor:\n  monitor_args: {password: '****', say: '**** stars'}\n"
        "buffer:\n  trainer_input:\n    experience_buffer:\n      path: postgresql://me:****@db/x\n"
    )
    (tmp_path / "origins.json").write_text('{"monitor.monitor_args": "/srv/run.yaml:7"}')

    with pytest.raises(ConfigError) as raised:
        load_config(tmp_path / "config.yaml")

    first, second = str(raised.value).splitlines()[1:]
    hidden = (
        "is ****, by which a run hides a secret in the copy of its configuration. Start the run"
    )
    assert f"config.yaml:3: monitor.monitor_args.password: {hidden}" in first
    assert "with its own file (/srv/run.yaml:7), or set monitor.monitor_args.password to" in first
    assert "config.yaml:7: buffer.trainer_input.experience_buffer.path: is ****" in second
    given = ["monitor.monitor_args.password=open", "buffer.trainer_input.experience_buffer.path=x"]
    assert load_config(tmp_path / "config.yaml", overrides=given).mode == "both"
