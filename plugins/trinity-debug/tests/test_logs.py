"""What ends a run stands in its log, with its traceback, and is not said twice."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from pathlib import Path

import pytest
from trinity.common.workflows import Task, Workflow
from trinity.errors import ConfigError
from trinity.explorer.failure import TRACEBACKS
from trinity.runtime.record.logs import logs_to
from trinity_debug.log_files import log_files, merged


def errors(directory):
    return list(merged(log_files(directory), level=logging.ERROR))


def test_an_error_that_ends_the_run_is_in_the_log_with_its_traceback_and_cause(tmp_path) -> None:
    said = []
    error = ConfigError("set it to 3")
    error.__cause__ = ZeroDivisionError("of the plugin")
    with pytest.raises(ConfigError), logs_to(tmp_path, level="info", say=said.append):
        raise error

    (record,) = errors(tmp_path)
    assert record.text.startswith("the run failed: set it to 3\nZeroDivisionError: of the plugin\n")
    assert "Traceback (most recent call last):" in record.text
    assert record.text.endswith("ConfigError: set it to 3")
    assert said == []  # whoever called run() tells it


def test_an_error_that_is_no_exception_is_in_the_log_too(tmp_path) -> None:
    with pytest.raises(CancelledError), logs_to(tmp_path, level="info", say=print):
        raise CancelledError("judge")

    (record,) = errors(tmp_path)
    assert record.text.startswith("the run failed: judge\n")


def test_ctrl_c_is_no_error_of_the_run(tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt), logs_to(tmp_path, level="info", say=print):
        raise KeyboardInterrupt

    assert errors(tmp_path) == []


def test_a_traceback_is_written_and_not_said(tmp_path) -> None:
    said = []
    with logs_to(tmp_path, level="info", say=said.append):
        logging.getLogger(TRACEBACKS).error("a run failed")
        logging.getLogger("trinity.explorer").warning("one run failed and is left out")

    assert [record.text for record in errors(tmp_path)] == ["a run failed"]
    assert said == ["warning: one run failed and is left out"]


def test_what_a_workflow_of_a_plugin_logs_is_in_the_log(tmp_path) -> None:
    class OfAPlugin(Workflow):
        def run(self):
            self.logger.warning("the game has no door")

    workflow = OfAPlugin(task=Task(raw_task={}), model=None)
    with logs_to(tmp_path, level="info", say=print):
        workflow.run()

    (record,) = merged(log_files(tmp_path), level=logging.WARNING)
    assert record.text == "the game has no door"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk: /dev/full")
def test_a_log_on_a_full_disk_is_told_once_and_leaves_nothing_at_the_logger(tmp_path) -> None:
    (tmp_path / "trinity.log").symlink_to("/dev/full")
    said, before = [], list(logging.getLogger("trinity").handlers)

    with logs_to(tmp_path, level="info", say=said.append):
        logging.getLogger("trinity").info("nobody can read this")

    assert logging.getLogger("trinity").handlers == before
    (line,) = said
    assert "trinity.log cannot be written: " in line
    assert "No space left" in line


def test_an_error_whose_text_cannot_be_made_is_in_the_log_as_itself(tmp_path) -> None:
    class UnreadableError(Exception):
        def __str__(self):
            raise AttributeError("detail")

    with pytest.raises(UnreadableError), logs_to(tmp_path, level="info", say=print):
        raise UnreadableError

    (record,) = errors(tmp_path)
    assert record.text.startswith("the run failed: <exception str() failed>\n")
    assert "UnreadableError" in record.text
