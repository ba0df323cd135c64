"""The logs of a run are read as one, by time."""

from __future__ import annotations

import logging

import pytest
from trinity.cli.main import app
from trinity_debug.log_files import log_files, merged
from typer.testing import CliRunner

DRIVER = (
    "2026-11-21 16:00:01,000 INFO trinity.runtime: first\n"
    "2026-11-21 16:00:04,000 WARNING trinity.runtime: fourth\n"
)
TRAINER = (
    "2026-11-21 16:00:02,000 ERROR trinity.traceback: second\nTraceback:\n  third line\n"
    "2026-11-21 16:00:03,000 INFO stdout: third\n"
)


@pytest.fixture
def run_directory(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "trinity.log").write_text(DRIVER)
    (tmp_path / "logs" / "trainer.log").write_text(TRAINER)
    return tmp_path


@pytest.fixture
def log():
    """Return a function that runs ``trinity log`` and gives its result."""
    return lambda *words: CliRunner().invoke(app, ["log", *map(str, words)])


def words(records):
    return [record.text.partition("\n")[0] for record in records]


def test_records_of_all_files_come_by_time(run_directory):
    records = list(merged(log_files(run_directory)))
    assert words(records) == ["first", "second", "third", "fourth"]
    assert [record.worker for record in records] == ["driver", "trainer", "trainer", "driver"]
    assert records[1].text.endswith("  third line")  # a traceback stays with its record


def test_only_the_severe_are_shown_when_asked(run_directory):
    assert words(merged(log_files(run_directory), level=logging.WARNING)) == ["second", "fourth"]


def test_a_file_is_read_on_from_where_it_ended(run_directory):
    files = log_files(run_directory)
    assert len(list(merged(files))) == 4
    with (run_directory / "trinity.log").open("a") as file:
        file.write("2026-11-21 16:00:05,000 INFO trinity: a whole line\n2026-11-21 16:")
    assert words(merged(files)) == ["a whole line"]


def test_the_rooms_of_stages_are_named_with_their_stage(tmp_path):
    (tmp_path / "warmup" / "logs").mkdir(parents=True)
    (tmp_path / "warmup" / "logs" / "trainer.log").write_text(TRAINER)
    assert [file.worker for file in log_files(tmp_path)] == ["warmup/trainer"]


def test_the_command_shows_room_and_record(run_directory, log, golden):
    golden(log(run_directory).output, "log_command")


def test_the_command_shows_the_end_of_one_room(run_directory, log):
    assert log(run_directory, "--room", "trainer", "-n", "1").output == (
        "2026-11-21 16:00:03,000 trainer      INFO     stdout: third\n"
    )


def test_the_command_finds_the_run_of_a_configuration(run_directory, log, a_yaml):
    assert "first" in log("--config", a_yaml(run_directory)).output


def test_the_folder_of_a_stage_shows_the_log_of_its_run(run_directory, log):
    stage = run_directory / "grpo"
    stage.mkdir()
    (stage / "run.json").write_text("{}")

    assert "first" in log(stage).output


@pytest.fixture
def a_yaml(tmp_path):
    def write(directory):
        path = tmp_path / "run.yaml"
        root, project, name = directory.parent.parent, directory.parent.name, directory.name
        path.write_text(f"checkpoint_root_dir: {root}\nproject: {project}\nname: {name}\n")
        return path

    return write


@pytest.mark.parametrize(
    ("words", "name"), [((), "log_no_run"), (("--room", "trainr"), "log_no_room")]
)
def test_what_is_not_there_is_said(words, name, log, run_directory, golden, tmp_path):
    directory = run_directory if words else tmp_path / "nowhere"
    golden(str(log(directory, *words).exception), name, TMP=tmp_path)


def test_a_directory_or_a_configuration_has_to_be_named(log):
    result = log()
    assert result.exit_code == 2
    assert "name either a run directory or a --config" in result.output


def test_the_lines_of_one_run_are_found_by_its_id(run_directory, log):
    about = {
        "run 3/7/0: call 0-0 of tiny by planner": True,
        "run 3/7/01: call 0-0 of tiny by planner": False,
        "run 13/7/0: call 0-0 of tiny by planner": False,
        "workflow_error: workflow 'w' (p), task 3/7 (train row 5), run 0, attempt 1: bad": True,
        "workflow_error: workflow 'w' (p), task 3/7 (train row 5), run 10, attempt 1: bad": False,
    }
    lines = [f"2026-11-21 16:00:05,000 INFO trinity.endpoint: {text}\n" for text in about]
    (run_directory / "logs" / "runner-0.log").write_text("".join(lines))

    shown = log(run_directory, "--run", "3/7/0").stdout

    assert [text in shown for text in about] == list(about.values())
    assert "first" not in shown
    assert log(run_directory, "--run", "7").exit_code == 2
