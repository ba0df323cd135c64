"""The copied golden cases agree, and the golden run says so when they do not."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

RUN = Path(__file__).with_name("run.py")
DATA = Path(__file__).with_name("data")


class Result(NamedTuple):
    code: int
    out: str


@pytest.fixture(scope="module")
def run_module():
    """Return the command's module, which stands in no package."""
    spec = importlib.util.spec_from_file_location("golden_run", RUN)
    module = importlib.util.module_from_spec(spec)
    sys.modules["golden_run"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def golden_run(run_module, capsys):
    """Return a function that runs the command with these arguments."""

    def run(*arguments):
        code = run_module.main([str(argument) for argument in arguments])
        return Result(code, capsys.readouterr().out)

    return run


def test_the_copied_cases_agree_but_for_those_with_a_reason(golden_run):
    result = golden_run()

    assert result.code == 0, result.out
    *_, last = result.out.splitlines()
    name, passed, failed, not_mapped = last.split()
    assert (name, int(failed)) == ("all", 0)
    assert int(passed) > 770
    assert int(not_mapped) == result.out.count("NOT MAPPED ")


@pytest.fixture
def one_case(tmp_path):
    """Return a function that writes a folder with a changed copy of the first case of a file."""

    def write(**changes):
        document = json.loads((DATA / "policy_loss.json").read_text())
        document["cases"] = [document["cases"][0] | changes]
        (tmp_path / "policy_loss.json").write_text(json.dumps(document))
        return tmp_path

    return write


def test_a_folder_with_some_of_the_files_will_do(golden_run, one_case):
    result = golden_run("--data", one_case())

    assert result.code == 0
    assert "policy_loss              1       0           0" in result.out


def test_a_wrong_number_fails_the_run_and_is_shown(golden_run, one_case):
    result = golden_run("--data", one_case(outputs={"loss": 12.5}))

    assert result.code == 1
    assert "loss: expected 12.5, got " in result.out


def test_a_case_of_a_function_that_nobody_has_fails_the_run(golden_run, one_case):
    result = golden_run("--data", one_case(fn="unheard_of"))

    assert result.code == 1
    assert "NOT MAPPED" in result.out


def test_comparing_nothing_fails_the_run(golden_run, tmp_path):
    assert golden_run("--data", tmp_path).code == 1
