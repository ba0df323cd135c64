"""Ctrl-C as the program loads and as it ends: 130, a line at most, and never a traceback.

The process presses itself, as one of its imports begins, so that the moment is certain.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

# Each word is a module, at whose import it presses; or MODULE@exit, at whose import it registers an
# exit function that does; or "end": it presses behind all exit functions.
PRESSES = """
import atexit
import os
import signal
import sys

left = os.environ["PRESS_AT"].split()


class Presses:
    def find_spec(self, name, path, target=None):
        if name + "@exit" in left:
            left.remove(name + "@exit")
            atexit.register(press)
        if name in left:
            left.remove(name)
            press()


def press():
    os.kill(os.getpid(), signal.SIGINT)


if "end" in left:
    atexit.register(press)  # the first that is registered is called last
sys.meta_path.insert(0, Presses())
"""
NOTHING_BEGAN = "stopped at once, before the command had begun: nothing was started\n"
LOADING = "stopped at once, while the run was loading: the same command goes on\n"


@pytest.fixture
def pressed(tmp_path, config_dict, write_yaml):
    """Return a function: a command and where Ctrl-C is pressed in it -> how it ended."""
    (tmp_path / "sitecustomize.py").write_text(PRESSES)
    config = write_yaml(config_dict)
    options = {"run": ["--local", "--config", config], "debug": [config], "view": [tmp_path]}

    def call(command, moments, *, program, given=()):
        arguments = given or options.get(command, [])
        return subprocess.run(
            [*program, command, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PRESS_AT": moments, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call


MODULE = [sys.executable, "-m", "trinity"]
PROGRAMS = {"module": MODULE, "script": [str(Path(sys.executable).with_name("trinity"))]}


def matrix(*rows, kept):
    """Return all combinations; those that are not kept are for ``nox -s acceptance``."""
    return [
        pytest.param(*row, marks=[] if row in kept else pytest.mark.acceptance)
        for row in itertools.product(*rows)
    ]


@pytest.mark.parametrize(
    ("program", "moment", "command"),
    matrix(
        ("module", "script"),
        ("trinity.extend", "pluggy", "trinity.cli.main", "typer"),
        ("run", "--help"),
        kept=[
            ("module", "trinity.extend", "run"),
            ("script", "pluggy", "--help"),
            ("module", "trinity.cli.main", "--help"),
            ("script", "typer", "run"),
        ],
    ),
)
def test_before_a_command_begins_a_line_says_that_nothing_was_started(
    pressed, program, command, moment
) -> None:
    ended = pressed(command, moment, program=PROGRAMS[program])

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", NOTHING_BEGAN)


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        pytest.param("run", "trinity.runtime.run", marks=pytest.mark.acceptance),
        ("run", "torch.version"),
        pytest.param("debug", "torch.version", marks=pytest.mark.acceptance),
        pytest.param("debug", "transformers", marks=pytest.mark.acceptance),
        ("view", "trinity_studio.view.run"),
    ],
)
def test_what_a_command_loads_is_broken_off_without_a_traceback(pressed, command, moment) -> None:
    ended = pressed(command, moment, program=MODULE)

    said = ended.stdout + ended.stderr
    assert ended.returncode == 130
    assert said.endswith(LOADING if command == "run" else "stopped at once\n")
    assert "Traceback" not in said


SWALLOWS = """
import os
import signal

import typer
from trinity.extend import hookimpl

app = typer.Typer()


@hookimpl
def trinity_commands():
    return {"work": "works:app"}


@app.command()
def work(how: str):
    try:
        press = "os.kill(os.getpid(), signal.SIGINT)"
        if how == "in a text":
            exec(press)
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt as error:
        if how == "again":
            os.kill(os.getpid(), signal.SIGINT)
        if how == "hidden":
            raise ValueError("built by a library") from error
        raise
    finally:
        print("closed")
"""


@pytest.mark.parametrize(
    ("how", "more"),
    matrix(
        ("once", "again", "hidden", "in a text"),
        ("", "typer@exit", "end"),
        kept=[("once", "end"), ("again", "typer@exit"), ("hidden", ""), ("in a text", "")],
    ),
)
def test_a_command_at_work_closes_what_it_has_opened(pressed, tmp_path, how, more) -> None:
    (tmp_path / "works.py").write_text(SWALLOWS)
    (tmp_path / "works-1.0.dist-info").mkdir()
    (tmp_path / "works-1.0.dist-info/METADATA").write_text("Name: works\nVersion: 1.0\n")
    (tmp_path / "works-1.0.dist-info/entry_points.txt").write_text("[trinity.plugins]\nw = works\n")

    ended = pressed("work", more, program=MODULE, given=[how])

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "closed\n", "")


@pytest.mark.parametrize(("moment", "code"), [("typer@exit", 130), ("end", 0)])
def test_a_command_that_ended_well_is_no_traceback_as_it_leaves(pressed, moment, code) -> None:
    ended = pressed("--version", moment, program=MODULE)

    assert (ended.returncode, ended.stderr) == (code, "")
    assert ended.stdout.startswith("trinity ")
