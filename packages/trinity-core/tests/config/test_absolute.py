"""Relative paths count from where the run was started; names and addresses are no paths."""

from __future__ import annotations

import pytest
from trinity.common.config import load_config, resolve
from trinity.common.config.absolute import make_absolute
from trinity.common.config.paths import value_at

BUFFER = "buffer.trainer_input.experience_buffer"


@pytest.mark.parametrize(
    ("path", "given", "found"),
    [
        ("model.model_path", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("model.model_path", "there", "/start/there"),
        ("model.model_path", "~/models/qwen", "/start/home/models/qwen"),
        ("checkpoint_root_dir", "runs", "/start/runs"),
        ("checkpoint_root_dir", "~/runs", "/start/home/runs"),
        (f"{BUFFER}.path", "rows.jsonl", "/start/rows.jsonl"),
        (f"{BUFFER}.path", "sqlite:///run.db", "sqlite:////start/run.db"),
        (f"{BUFFER}.path", "sqlite:////data/run.db", "sqlite:////data/run.db"),
        (f"{BUFFER}.path", "sqlite:///~/run.db", "sqlite:////start/home/run.db"),
        (f"{BUFFER}.path", "sqlite+pysqlite:///~/r.db", "sqlite+pysqlite:////start/home/r.db"),
        (f"{BUFFER}.path", "postgresql://me@db/runs", "postgresql://me@db/runs"),
        ("explorer.db_url", "~/serve.db", "/start/home/serve.db"),
        ("explorer.db_url", "serve.db", "/start/serve.db"),
    ],
)
def test_a_path_is_absolute_and_a_name_stays(
    path, given, found, a_run, cpu, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "there").mkdir()
    overrides = [f"{BUFFER}.storage_type={'sql' if '://' in given else 'file'}", f"{path}={given}"]
    config = resolve(load_config(a_run(), overrides=overrides), cpu)

    make_absolute(config)

    assert value_at(config, path) == found.replace("/start", str(tmp_path))


def test_paths_in_arguments_of_components_are_below_the_home_too(
    a_run, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = (
        "{data: ~/games, binds: [~/tools, /usr/share], deep: {one: ~/two}, mark: '~', n: 3, "
        "command: [sh, ~/inside.sh]}"
    )

    config = load_config(
        a_run(), overrides=[f"buffer.explorer_input.taskset.workflow_args={arguments}"]
    )

    assert config.buffer.explorer_input.taskset.workflow_args == {
        "data": f"{tmp_path}/games",
        "binds": [f"{tmp_path}/tools", "/usr/share"],
        "deep": {"one": f"{tmp_path}/two"},
        "mark": "~",
        "n": 3,
        "command": ["sh", "~/inside.sh"],  # which may run in a container
    }
