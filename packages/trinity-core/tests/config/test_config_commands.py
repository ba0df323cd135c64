from __future__ import annotations

import json

import pytest
from trinity.cli.config import app
from typer.testing import CliRunner


@pytest.fixture
def trinity_config(builtin_only, monkeypatch, tmp_path):
    """Return a function that runs ``trinity config``; gives its exit code and its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # the texts are those of a laptop

    def run(*arguments: object) -> tuple[int, str]:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        return result.exit_code, result.output

    return run


def test_check_prints_the_arithmetic_of_a_good_file(
    trinity_config, a_run, golden, tmp_path
) -> None:
    code, text = trinity_config("check", a_run())

    assert code == 0
    golden(text, "config_check_ok", TMP=tmp_path)


def test_check_prints_notes_and_problems_and_leaves_with_1(
    trinity_config, a_run, golden, tmp_path
) -> None:
    path = a_run("""
    explorer: {rollout_model: {enforce_eager: true, engine_num: 2}}
    synchronizer: {sync_style: fully_async, sync_interval: 3}
    """)

    code, text = trinity_config("check", path, "--set", "algorithm.kl_loss_fn=k22")

    assert code == 1
    golden(text, "config_check_problems", TMP=tmp_path)


def test_check_goes_on_after_a_file_that_cannot_be_read(trinity_config, a_run) -> None:
    code, text = trinity_config("check", "nowhere.yaml", a_run())

    assert code == 1
    assert "'nowhere.yaml' cannot be read" in text
    assert "run.yaml: ok" in text


def test_check_multiplies_the_steps_of_an_environment(trinity_config, a_run) -> None:
    setting = "buffer.explorer_input.taskset.workflow_args.max_env_steps=30"

    _, text = trinity_config(
        "check", a_run(), "--set", setting, "--set", "buffer.batch_size=16",
        "--set", "algorithm.repeat_times=16", "--set", "buffer.train_batch_size=7680",
        "--set", "explorer.rollout_model.enable_history=true",
    )  # fmt: skip

    assert "16 tasks x 16 runs x up to 30 steps = up to 7680 experiences a step" in text
    assert "7680 experiences a train step" in text


def test_check_names_each_stage(trinity_config, a_run) -> None:
    path = a_run("stages: [{stage_name: one}, {stage_name: two}]")

    code, text = trinity_config("check", path)

    assert code == 0
    assert "stage rft/one:" in text
    assert "stage rft/two:" in text


def test_show_prints_each_value_with_its_origin(trinity_config, a_run) -> None:
    path = a_run()

    code, text = trinity_config("show", path, "--set", "buffer.batch_size=3")

    lines = {
        line.partition("  #")[0].strip(): line.partition("# ")[2] for line in text.splitlines()
    }
    assert code == 0
    assert lines["buffer.batch_size = 3"] == "command line"
    assert lines["buffer.train_batch_size = 12"] == "batch_size x repeat_times"
    assert lines["algorithm.kl_loss_fn = 'k2'"] == "algorithm grpo"
    assert lines["model.max_model_len = 64"] == f"{path}:2"
    assert lines["trainer.trainer_type = 'torch'"] == "the only trainer"


def test_show_as_json_is_an_interface(trinity_config, a_run) -> None:
    _, text = trinity_config("show", a_run(), "--json")

    shown = json.loads(text)
    (stage,) = shown["stages"]
    assert shown["schema"] == 1
    assert set(stage) == {"name", "values", "notes"}
    assert stage["values"]["buffer.train_batch_size"] == {
        "value": 8,
        "origin": "batch_size x repeat_times",
    }


def test_schema_prints_json(trinity_config) -> None:
    code, text = trinity_config("schema")

    assert code == 0
    assert json.loads(text)["title"] == "Config"


def test_a_plugin_folder_gives_names_too(trinity_config, a_run, tmp_path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my_reward.py").write_text(
        "from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn\n"
        "@REWARD_FUNCTIONS.register_module('mine')\n"
        "class Mine(RewardFn):\n"
        "    def __call__(self, **kwargs):\n"
        "        return {'mine': 1.0}\n"
    )
    setting = "buffer.explorer_input.taskset.default_reward_fn_type=mine"

    code, text = trinity_config("check", a_run(), "--plugin-dir", folder, "--set", setting)

    assert code == 0, text
