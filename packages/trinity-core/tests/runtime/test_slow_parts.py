"""A call of a plugin's code that takes long is told, whichever it is."""

from __future__ import annotations

import importlib.util

import pytest
from trinity.common.config import Config
from trinity.common.config.parts import default_args_of
from trinity.extend import watch
from trinity.runtime.error_context import try_to
from trinity.runtime.preflight import watch_of

SLEEPS = """
import time


class Sleeps:
    @classmethod
    def default_args(cls):
        time.sleep(0.3)
        return {}

    def run(self):
        time.sleep(0.3)

    whatever = __call__ = lambda self: time.sleep(0.3)
"""


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Return a function that lets the core make a call, and gives the lines that are said."""
    monkeypatch.setattr(watch, "LOOK_S", 0.05)
    path = tmp_path / "sleeping.py"
    path.write_text(SLEEPS)
    spec = importlib.util.spec_from_file_location("sleeping", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = Config.model_validate({"plugins": {"report_after_s": 0.1}})

    def call(name):
        lines = []
        with watch_of(config, say=lines.append):
            if name == "default_args":
                default_args_of(module.Sleeps)
            else:
                try_to(getattr(module.Sleeps(), name), failure="")
        return lines

    return call


@pytest.mark.parametrize("name", ["default_args", "__call__", "whatever"])
def test_a_part_that_sleeps_is_told_whatever_its_name(said, name) -> None:
    (line,) = said(name)

    assert line.startswith("waiting for Sleeps.")
    assert "sleeping.py:" in line


def test_a_workflow_or_a_run_mode_may_run_as_long_as_its_own_limit_says(said) -> None:
    assert said("run") == []
