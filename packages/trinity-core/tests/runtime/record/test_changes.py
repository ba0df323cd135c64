"""A second start says which settings are others than at the first."""

from __future__ import annotations

import json
import stat

import pytest
import yaml
from trinity.common.config import Config, TasksetConfig, load_config
from trinity.common.config.kept import kept_settings
from trinity.errors import CheckpointError
from trinity.extend import get_manager
from trinity.runtime.record.restart import changes_line, is_finished, note_start, say_changes
from trinity.runtime.record.rundir import RunDir, write_manifests


class Said(list):
    say = list.append


@pytest.fixture
def rundir(tmp_path):
    write_manifests(Config(seed=1), plugins=[], directory=tmp_path)
    return RunDir(tmp_path)


def finished(config):
    asked = [config.buffer.total_epochs, config.buffer.total_steps, config.trainer.total_steps]
    return {"status": "finished", "train_steps": 2, "explore_steps": 2, "asked": asked}


def test_the_same_settings_are_no_change(rundir) -> None:
    assert changes_line(Config(seed=1), rundir=rundir) == ""


def test_a_setting_that_the_start_before_did_not_know_is_no_change_at_its_default(rundir) -> None:
    kept, key = rundir.path / "config.yaml", "enable_sleep_mode"
    lines = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(line for line in lines if key not in line))
    config = Config(seed=1)

    assert changes_line(config, rundir=rundir) == ""
    config.explorer.rollout_model.enable_sleep_mode = True
    line = changes_line(config, rundir=rundir)
    assert line == f"explorer.rollout_model.{key} none -> True"


def test_a_changed_setting_of_a_finished_run_is_said_with_a_remedy(rundir, golden) -> None:
    config, said = Config(seed=2), Said()
    config.algorithm.optimizer.lr = 0.5

    say_changes(config, before=finished(config), rundir=rundir, display=said)

    golden("\n".join(said), "settings_changed")


def test_a_changed_setting_of_a_run_that_goes_on_is_only_said(rundir) -> None:
    said = Said()

    say_changes(Config(seed=2), before={"status": "interrupted"}, rundir=rundir, display=said)

    assert said == ["changed since the last start: seed 1 -> 2"]


def test_a_run_of_which_fewer_steps_are_asked_than_it_made_is_finished() -> None:
    before = finished(Config())

    for total, is_over in ((1, True), (2, True), (3, False)):
        assert is_finished(Config(buffer={"total_steps": total}), before) is is_over
    longer = Config(buffer={"total_steps": 1}, trainer={"total_steps": 3})
    assert not is_finished(longer, before)  # it may train on what it explored


def test_a_first_start_says_nothing_of_changes(tmp_path) -> None:
    said = Said()

    say_changes(Config(seed=2), before={}, rundir=RunDir(tmp_path), display=said)

    assert said == []


def test_more_steps_are_no_change(rundir) -> None:
    config = Config(seed=1)
    config.buffer.total_steps = 99

    assert changes_line(config, rundir=rundir) == ""


class AnEnvironmentWhoseReprIsLongerThanWhatIsShown:
    pass


@pytest.mark.parametrize("cls", [object, AnEnvironmentWhoseReprIsLongerThanWhatIsShown])
def test_objects_of_a_script_are_no_change(tmp_path, cls) -> None:
    for _ in range(2):  # the second time, another object at another address
        config = Config()
        config.buffer.explorer_input.taskset = TasksetConfig(workflow_args={"env": cls()})
        line = changes_line(config, rundir=RunDir(tmp_path))
        write_manifests(config, plugins=[], directory=tmp_path)

    assert line == ""


def test_what_may_be_a_secret_is_not_shown(rundir) -> None:
    config = Config(seed=1)
    config.explorer.env_vars = {"HF_HUB": "hf-123"}
    config.monitor.monitor_args = {"api_key": "sk-123", "url": "http://me:s3@there", "tag": "a"}

    line = changes_line(config, rundir=rundir)

    assert line == (
        "explorer.env_vars.HF_HUB (values not shown), "
        "monitor.monitor_args.api_key (values not shown), "
        "monitor.monitor_args.tag none -> a, "
        "monitor.monitor_args.url (values not shown)"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hf_token", "hf-123"),
        ("GITHUB_TOKEN", "ghp-123"),
        ("token", "123"),
        ("X-Api-Key", "sk-123"),
        ("password", 12345678),
        ("servers", [{"url": "there", "auth-token": "123"}]),
        ("servers", [{"url": "there", "token": "123"}]),
        ("url", "https://ghp_x@there"),
        ("url", "https://there?token=123"),
        ("url", "https://there?a=1&hf_token=123"),
    ],
)
def test_keys_passwords_and_tokens_are_not_shown_under_any_name(name, value, rundir) -> None:
    config = Config(seed=1)
    config.monitor.monitor_args = {name: value}

    line = changes_line(config, rundir=rundir)

    assert line == f"monitor.monitor_args.{name} (values not shown)"


@pytest.mark.parametrize("name", ["max_tokens", "tokenizer", "token_level", "pad_token"])
def test_settings_of_the_tokens_of_a_text_are_shown(name, rundir) -> None:
    config = Config(seed=1)
    config.monitor.monitor_args = {name: "much"}

    assert changes_line(config, rundir=rundir) == f"monitor.monitor_args.{name} none -> much"


def of_judge(tmp_path, key, **env):
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"explorer": {"env_vars": {"JUDGE_API_KEY": key}}}))
    return load_config(file, env=env)


def test_a_variable_that_means_something_else_now_is_a_change(tmp_path) -> None:
    key, rundir = "${oc.env:JUDGE}", RunDir(tmp_path)
    write_manifests(of_judge(tmp_path, key, JUDGE="sk-123456"), plugins=[], directory=tmp_path)

    assert key in (tmp_path / "config.yaml").read_text()
    assert "sk-123456" not in (tmp_path / "resolved.json").read_text()
    assert changes_line(of_judge(tmp_path, key, JUDGE="sk-123456"), rundir=rundir) == ""
    assert changes_line(of_judge(tmp_path, "sk-123456"), rundir=rundir) == ""
    assert changes_line(of_judge(tmp_path, key, JUDGE="sk-654321"), rundir=rundir) == (
        "explorer.env_vars.JUDGE_API_KEY (values not shown)"
    )


def test_a_directory_whose_configuration_has_plain_secrets_is_compared_too(tmp_path) -> None:
    then = of_judge(tmp_path, "sk-123456").model_dump(mode="json")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(then))
    rundir = RunDir(tmp_path)

    same = changes_line(of_judge(tmp_path, "${oc.env:JUDGE}", JUDGE="sk-123456"), rundir=rundir)
    other = changes_line(of_judge(tmp_path, "sk-654321"), rundir=rundir)

    assert (same, other) == ("", "explorer.env_vars.JUDGE_API_KEY (values not shown)")


def test_who_reads_a_run_later_finds_what_its_interpolations_meant(tmp_path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: {model_path: '${oc.env:MODEL}'}\nexplorer: {env_vars: {A: '${oc.env:A}'}}"
    )
    write_manifests(load_config(file, env={"MODEL": "m", "A": "a"}), plugins=[], directory=tmp_path)
    kept = yaml.safe_load((tmp_path / "config.yaml").read_text())

    settings = kept_settings(kept, tmp_path)

    assert (kept["model"]["model_path"], settings["model"]["model_path"]) == (
        "${oc.env:MODEL}",
        "m",
    )
    assert settings["explorer"]["env_vars"] == {"A": "${oc.env:A}"}
    assert kept_settings(kept, tmp_path, env={"A": "b"})["explorer"]["env_vars"] == {"A": "b"}


@pytest.mark.parametrize("is_used", [False, True])
def test_a_directory_with_secrets_is_its_owners_alone_unless_he_said_otherwise(
    tmp_path, is_used
) -> None:
    rundir = RunDir(tmp_path / "p" / "run")
    rundir.create(is_private=True)
    assert stat.S_IMODE(rundir.path.stat().st_mode) == 0o700
    if is_used:
        write_manifests(Config(), plugins=[], directory=rundir.path)
    rundir.path.chmod(0o750)

    rundir.create(is_private=True)

    assert stat.S_IMODE(rundir.path.stat().st_mode) == (0o750 if is_used else 0o700)


@pytest.mark.parametrize("left", [b"", b"a: [", b"\xff\xfe"])
def test_a_damaged_record_of_the_start_before_ends_no_run(rundir, left) -> None:
    (rundir.path / "config.yaml").write_bytes(left)

    assert changes_line(Config(seed=2), rundir=rundir) == ""


def test_a_status_file_that_is_damaged_says_what_to_do(tmp_path, golden) -> None:
    (tmp_path / "run.json").write_text("{")

    with pytest.raises(CheckpointError) as raised:
        RunDir(tmp_path).read_status(mode="both")

    golden(str(raised.value), "status_damaged", TMP=tmp_path)


def test_each_start_is_noted_with_its_plugins_and_what_was_changed(tmp_path) -> None:
    rundir = RunDir(tmp_path)
    first = Config(seed=1, explorer={"env_vars": {"KEY": "hush"}})
    note_start(first, before={}, manager=get_manager(), rundir=rundir)
    write_manifests(first, plugins=[], directory=tmp_path)
    second = Config(seed=2, explorer={"env_vars": {"KEY": "shh"}})

    note_start(second, before={"train_steps": 3}, manager=get_manager(), rundir=rundir)

    one, two = (json.loads(line) for line in (tmp_path / "starts.jsonl").read_text().splitlines())
    assert (one["changes"], one["trained"], two["trained"]) == ([], 0, 3)
    assert two["changes"] == [
        ["explorer.env_vars.KEY", "(not shown)", "(not shown)"],
        ["seed", "1", "2"],
    ]
    assert two["plugins"]["trinity-core"].startswith("0.1")
    assert two["digest"] == get_manager().digest()


def test_a_start_that_the_disk_did_not_take_spoils_no_later_one(
    tmp_path, full_beyond, caplog
) -> None:
    rundir, config = RunDir(tmp_path), Config(seed=1)
    with full_beyond(20):
        note_start(config, before={}, manager=get_manager(), rundir=rundir)
    note_start(config, before={"train_steps": 3}, manager=get_manager(), rundir=rundir)

    lines = (tmp_path / "starts.jsonl").read_text().splitlines()
    assert [json.loads(line)["trained"] for line in lines] == [3]
    (told,) = caplog.messages
    assert "starts.jsonl cannot be written: " in told
