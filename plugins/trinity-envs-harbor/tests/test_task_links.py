"""Links of a task's folder lead into the folder of tasks; others are refused and not read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from trinity.errors import BadTaskError
from trinity_envs_harbor.commands import app
from trinity_envs_harbor.layout import images_for
from trinity_envs_harbor.prepared import problems_of
from trinity_envs_harbor.task import digest_of
from typer.testing import CliRunner

from .conftest import needs_bwrap

STEP = '[environment]\ndocker_image = "debian"\nworkdir = "/app"\n[[steps]]\nname = "one"\n'
RAW = {"action": "raw", "max_env_steps": 1}
HELLO = "echo hello > /app/greeting.txt"


def invoked(*words: str | Path) -> str:
    return CliRunner().invoke(app, [*map(str, words), "--image", "*=host"]).output


def told(folder: Path, tasks: Path | None = None) -> list[str]:
    _, problems = problems_of(folder, {"*": "host"}, tasks=tasks)
    return [str(one).removeprefix(f"{folder}/") for one in problems]


@pytest.fixture
def shared(a_task, tmp_path) -> tuple[Path, Path]:
    """A task whose tests and solution are links to folders beside the tasks, and the tests."""
    folder, beside = a_task(), tmp_path / "tasks" / "shared"
    for name in ("tests", "solution"):
        shutil.move(folder / name, beside / name)
        (folder / name).symlink_to(Path("../shared") / name)
    return folder, beside / "tests"


@needs_bwrap
def test_tasks_may_share_tests_and_a_solution_by_links(shared, run_task, tmp_path):
    folder, _ = shared
    rows = tmp_path / "rows.jsonl"

    assert "1 tasks, 0 of them with a problem" in invoked("oracle", folder.parent)
    invoked("rows", folder.parent, rows)
    [row] = [json.loads(line) for line in rows.read_text().splitlines()]
    [experience], _ = run_task(folder, HELLO, row=row, **RAW)
    assert (row["tasks_dir"], experience.reward) == (str(folder.parent), 1.0)


@needs_bwrap
@pytest.mark.parametrize("name", ["tasks_dir", "digest"])
def test_a_row_without_the_folder_of_tasks_or_a_digest_has_no_shared_tests(shared, run_task, name):
    folder, _ = shared
    row = {"tasks_dir": str(folder.parent), "digest": digest_of(folder, folder.parent)}
    del row[name]

    with pytest.raises(BadTaskError, match=r"tests: it is a link to .*/shared/tests, outside of"):
        run_task(folder, HELLO, row=row, **RAW)


@needs_bwrap
def test_a_digest_is_compared_before_a_build(a_task, run_task, tmp_path):
    dockerfile = "FROM debian\nWORKDIR /app\nRUN false\n"
    folder = a_task(toml="\n", environment__Dockerfile=dockerfile)

    with pytest.raises(BadTaskError, match="has changed since the row was written"):
        run_task(folder, HELLO, row={"digest": "0" * 64}, **RAW)


def test_a_digest_changes_with_tests_that_a_link_leads_to(shared):
    folder, tests = shared
    before = digest_of(folder, folder.parent)
    (tests / "test.sh").write_text("#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")

    assert digest_of(folder, folder.parent) != before


@pytest.mark.parametrize(
    "name",
    [
        *("task.toml", "instruction.md", "environment", "environment/.dockerignore"),
        *("environment/Dockerfile", "tests", "tests/test.sh", "solution", "solution/solve.sh"),
        *("steps", "steps/one", "steps/one/instruction.md", "steps/one/tests", "steps/one/workdir"),
        "steps/one/workdir/setup.sh",
    ],
)
def test_a_link_out_of_the_folder_of_tasks_is_refused_by_its_name_and_not_read(
    a_task, tmp_path, monkeypatch, name
):
    steps = {f"steps__one__{one}": "x" for one in ("instruction.md", "tests__a", "workdir__a")}
    files = {"environment/Dockerfile": "FROM debian\n", "environment/.dockerignore": "none\n"}
    more = {"steps__one__workdir__setup.sh": "#!/bin/sh\n"}
    folder, elsewhere = a_task(toml=STEP, **steps, **files, **more), tmp_path / "elsewhere"
    assert told(folder, folder.parent) == []
    shutil.move(folder / name, elsewhere)
    (folder / name).symlink_to(elsewhere)
    read, opened = [], Path.open

    def noted(path, *given, **how):
        read.append(os.path.realpath(path))
        return opened(path, *given, **how)

    monkeypatch.setattr(Path, "open", noted)
    remedy = "Copy that into the task; or give the folder that holds both: trinity harbor rows"
    said = f"{name}: it is a link to {elsewhere}, outside of {folder.parent}. {remedy} FOLDER FILE."
    assert told(folder, folder.parent) == [said]
    digest_of(folder, folder.parent)
    assert not [one for one in read if one.startswith(str(elsewhere))]
    assert f"{folder}: cannot run\n  {folder}/{said}\n" in invoked("check", folder.parent)
    rows = tmp_path / "rows.jsonl"
    assert f"{folder}/{said}\n" in invoked("rows", folder.parent, rows)
    assert not rows.exists()


def test_a_folder_of_tasks_is_not_the_whole_machine(shared, tmp_path):
    folder, _ = shared

    assert [one.partition(":")[0] for one in told(folder, Path("/"))] == ["tests", "solution"]
    assert told(folder, tmp_path) == []


@needs_bwrap
def test_the_oracle_goes_on_behind_a_task_with_a_link_out(a_task, tmp_path):
    folder = a_task(name="a")
    a_task(name="b")
    shutil.move(folder / "tests", tmp_path / "elsewhere")
    (folder / "tests").symlink_to(tmp_path / "elsewhere")
    found = invoked("oracle", folder.parent)

    assert f"{folder}/tests: it is a link to {tmp_path}/elsewhere, outside of" in found
    assert "2 tasks, 1 of them with a problem" in found


@pytest.mark.parametrize("target", ["/", "/proc", "/proc/self/root", "/dev"])
def test_a_link_to_what_has_no_end_ends_nothing(a_task, target):
    folder = a_task()
    shutil.rmtree(folder / "tests")
    (folder / "tests").symlink_to(target)
    before = digest_of(folder)

    assert told(folder)[0].startswith(f"tests: it is a link to {os.path.realpath(target)}, outside")
    (folder / "tests").unlink()
    (folder / "tests").symlink_to("/usr")
    assert digest_of(folder) != before


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "tests/test.sh", "tests/more"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(a_task, name):
    folder = a_task()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    digest_of(folder)

    assert [one.partition(":")[0] for one in told(folder)] == [name] * (name != "tests/more")


def test_images_that_are_a_file_of_proc_are_none(a_task, tmp_path):
    folder = a_task()
    (folder.parent / "images.toml").symlink_to("/proc/kmsg")

    assert images_for(folder) == {}
