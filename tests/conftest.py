"""A tiny model, a few rows, a configuration that trains on them in a second or two, and a user."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from trinity.extend import set_manager
from trinity.extend.held import HELD
from trinity_testing.fixtures import replay  # noqa: F401 -- a fixture


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"question": f"{i} + 1 =", "answer": str(i + 1)}) for i in range(8)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def config_dict(tiny_model, rows, tmp_path) -> dict[str, Any]:
    """Return GRPO on four tasks a step, four runs each, two steps."""
    return {
        "project": "e2e",
        "name": "tiny",
        "checkpoint_root_dir": str(tmp_path / "checkpoints"),
        "algorithm": {"algorithm_type": "grpo", "repeat_times": 4, "optimizer": {"lr": 1e-3}},
        "model": {
            "model_path": str(tiny_model),
            "max_model_len": 96,
            "max_response_tokens": 8,
        },
        "buffer": {
            "batch_size": 4,
            "total_epochs": 1,
            "explorer_input": {
                "taskset": {
                    "name": "rows",
                    "path": str(rows),
                    "format": {"prompt_key": "question", "response_key": "answer"},
                    "default_workflow_type": "simple_workflow",
                    "default_reward_fn_type": "format_reward",
                }
            },
        },
        "explorer": {"eval_on_startup": False, "max_timeout": 60},
        "monitor": {"monitor_type": "jsonl"},
    }


@pytest.fixture
def taskset(config_dict) -> dict[str, Any]:
    """Return the taskset's section of the configuration, to be changed in place."""
    return config_dict["buffer"]["explorer_input"]["taskset"]


@pytest.fixture
def write_yaml(tmp_path) -> Callable[..., Path]:
    def write(config: dict[str, Any], name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    return write


@pytest.fixture
def run_dir(tmp_path) -> Path:
    """Return where the run of ``config_dict`` leaves its files."""
    return tmp_path / "checkpoints" / "e2e" / "tiny"


@pytest.fixture
def status_of(run_dir) -> Callable[[], dict[str, Any]]:
    return lambda: json.loads((run_dir / "run.json").read_text())


@pytest.fixture
def plugin_dir(tmp_path) -> Callable[..., Path]:
    """Return a function that writes a module into a plugin folder and gives the folder."""

    def write(source: str, name: str = "rooms.py") -> Path:
        folder = tmp_path / "plugins"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(source)
        return folder

    return write


@pytest.fixture
def trinity_program(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that starts the program as a user does, in ``tmp_path``: 5 s and more."""

    def call(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "trinity", *map(str, arguments)],
            cwd=options.pop("cwd", tmp_path),
            env=os.environ | {"OMP_NUM_THREADS": "1"} | options.pop("env", {}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            **options,
        )

    return call


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a user has when a command is over."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def forks() -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that asks a process which forks runs; see ``e2e/dying_runs.py``."""
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("e2e") / "dying_runs.py"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def ask(**request: Any) -> dict[str, Any]:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.kill()  # processes that were forked meanwhile hold its pipe open


@pytest.fixture
def trinity_forked(forks, tmp_path) -> Callable[..., Ended]:
    """Return a function that calls the command line in a process that has what a run imports.

    For what may take its process along, where the start of the program is not what is tested: that
    takes a second, not six.
    """

    def call(*arguments: object, **env: str) -> Ended:
        said = tmp_path / "forked.said"
        ended = forks(arguments=[*map(str, arguments)], env=env, said=str(said))
        errors = said.with_suffix(".errors").read_text()
        return Ended(code=ended["code"], stdout=ended["said"], stderr=errors)

    return call


@pytest.fixture
def trinity(tmp_path, monkeypatch) -> Iterator[Callable[..., Ended]]:
    """Return a function that calls the command line here and now, in ``tmp_path``.

    It goes through ``trinity.cli.main.main``, as the program does; what a new process would
    not know (the plugins of the last call, the classes it held) is forgotten before each call.
    """
    from trinity.cli.main import main

    monkeypatch.chdir(tmp_path)
    before = set_manager(None)

    def call(*arguments: object, **env: str) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with (
            a_new_process(),
            mock.patch.dict(os.environ, env),
            mock.patch.object(sys, "argv", ["trinity", *map(str, arguments)]),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
        return Ended(code=ended.value.code or 0, stdout=out.getvalue(), stderr=err.getvalue())

    yield call
    set_manager(before)


@pytest.fixture
def a_process(monkeypatch, tmp_path) -> Iterator[None]:
    """Give the test a process of its own, in ``tmp_path``: plugins it loads are forgotten."""
    monkeypatch.chdir(tmp_path)
    with a_new_process():
        yield


@contextmanager
def a_new_process() -> Iterator[None]:
    """Discover plugins anew inside; after it, forget the modules and classes of plugin folders."""
    manager, finders = set_manager(None), list(sys.meta_path)
    try:
        yield
    finally:
        set_manager(manager)
        sys.meta_path[:] = finders
        for name, module in list(sys.modules.items()):
            if _is_of_a_folder(getattr(module, "__name__", "")):
                del sys.modules[name]
        held = HELD.copy().items()
        HELD.restore({k: v for k, v in held if not _is_of_a_folder(v.value.__module__)})


def _is_of_a_folder(module: str) -> bool:
    return module.startswith(("trinity_plugin_dir_", "trinity.plugins."))
