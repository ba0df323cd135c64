"""The rollouts for people to read stay within a limit, and go back with the run."""

from __future__ import annotations

import json

import pytest
from trinity.buffer.step_file import RolloutFile, older_half
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity.runtime.record.rewind import GrowingFiles
from trinity.runtime.record.rundir import RunDir


@pytest.fixture
def rundir(tmp_path):
    (tmp_path / "run" / "buffer").mkdir(parents=True)
    return RunDir(tmp_path / "run")


@pytest.fixture
def path(rundir):
    return rundir.buffer / "explorer_output.jsonl"


def opened(path) -> RolloutFile:
    """Return a file whose halves turn over at each third step."""
    return RolloutFile(path, setting="input_save_path", max_bytes=4 * size_of_a_step() - 1)


def size_of_a_step() -> int:
    return len(json.dumps(step(1).to_dict())) + 1


def step(number: int) -> Experience:
    return Experience(tokens=[1, 2], eid=EID(batch=number, task=0, run=0))


def write(file, *numbers):
    for number in numbers:
        file.write([step(number)])


def steps_in(path) -> list[int]:
    if not path.exists():
        return []
    return [json.loads(line)["eid"]["batch"] for line in path.read_text().splitlines()]


def growing(rundir) -> GrowingFiles:
    config = Config(mode="both")
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type="queue")
    return GrowingFiles(config, rundir=rundir)


def gone_back(rundir, marks) -> list[str]:
    said: list[str] = []
    files = growing(rundir)
    files.check(marks, say=said.append)
    files.cut(marks)
    return said


def test_the_file_and_its_older_half_keep_the_newest_steps_and_say_that_others_went(
    path, caplog
) -> None:
    caplog.set_level("INFO")
    write(opened(path), *range(1, 10))

    assert (steps_in(older_half(path)), steps_in(path)) == ([7, 8], [9])
    assert older_half(path).name == "explorer_output.older.jsonl"
    assert caplog.text.count("the oldest experiences in them are deleted") == 1


@pytest.mark.parametrize(
    ("saved", "last", "kept"),
    [
        (2, 3, [1, 2]),  # its half became the older one
        (1, 4, [1]),
        (3, 4, [3]),  # it still stands in its place
        (1, 6, []),  # both halves are of later steps
    ],
)
def test_a_run_that_goes_back_finds_the_lines_of_then(rundir, path, saved, last, kept) -> None:
    file, files = opened(path), growing(rundir)
    write(file, *range(1, saved + 1))
    marks = files.marks()
    write(file, *range(saved + 1, last + 1))

    said = gone_back(rundir, marks)

    assert steps_in(path) == kept
    assert bool(said) == (not kept)
    if kept:
        write(opened(path), saved + 1)
        assert (steps_in(older_half(path)) + steps_in(path))[-1] == saved + 1


def test_a_run_that_begins_from_its_start_has_no_older_half(rundir, path) -> None:
    marks = growing(rundir).marks()
    write(opened(path), 1, 2, 3)
    gone_back(rundir, marks)

    assert steps_in(older_half(path)) == steps_in(path) == []


def test_a_digest_is_of_the_file_that_took_the_place(rundir, path) -> None:
    file, files = opened(path), growing(rundir)
    write(file, 1, 2)
    files.marks()
    write(file, 3, 4)  # as long as the first half was

    assert gone_back(rundir, files.marks()) == []
    assert steps_in(path) == [3, 4]
