"""What a build takes of environment/, and what links of a task's folder lead to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from trinity_envs_harbor.commands import app
from trinity_envs_harbor.ignored import Ignored
from trinity_envs_harbor.task import digest_of
from typer.testing import CliRunner

from .conftest import needs_bwrap

DOCKERFILE = "FROM debian\nWORKDIR /app\nCOPY . ./\n"


def oracle(folder: Path) -> str:
    return CliRunner().invoke(app, ["oracle", str(folder), "--image", "*=host"]).output


@pytest.mark.parametrize(
    ("patterns", "ignored", "kept"),
    [
        ("secret.txt", ["secret.txt"], ["a/secret.txt", "secret.txt.old"]),
        ("/a/", ["a", "a/b/c"], ["b/a"]),
        ("*.log", ["x.log"], ["a/x.log"]),
        ("**/*.log", ["x.log", "a/b/x.log"], ["x.logs"]),
        ("a/**/z", ["a/z", "a/b/c/z", "a/z/y"], ["a/zz", "z"]),
        ("a?/[xy]", ["ab/x", "ab/y"], ["a/x", "ab/z", "ab/xy"]),
        ("*\n!keep\n!a/b", ["x", "a/c"], ["keep", "keep/x", "a/b"]),
        ("!a\na", ["a"], ["b"]),
        ("\ufeff# no comment\r\n\r\n  a.txt  \r\n#b", ["a.txt"], ["#b", "b", "# no comment"]),
        ("größe*\na.b", ["größe 1", "a.b"], ["axb"]),
        (".", [], ["a"]),
    ],
)
def test_patterns_are_those_of_docker(patterns, ignored, kept):
    found = Ignored.of(patterns)

    assert [path for path in [*ignored, *kept] if found.matches(path)] == ignored


@needs_bwrap
@pytest.mark.parametrize("name", [".dockerignore", "Dockerfile.dockerignore"])
def test_files_that_a_build_leaves_out_are_not_there(a_task, name):
    test = """\
    #!/bin/sh
    cd /app && find . -type f | LC_ALL=C sort > /tmp/found; cat /tmp/found; ls -d empty private
    printf './a.txt\\n./private/read.me\\n' | cmp - /tmp/found && [ -d empty ] && reward=1
    echo ${reward:-0} > /logs/verifier/reward.txt
    """
    folder = a_task(
        test,
        toml="\n",
        environment__Dockerfile=DOCKERFILE,
        **{
            f"environment/{name}": "expected.txt\nDockerfile\n*ignore\nprivate\n!private/read.me\n",
            "environment/a.txt": "a",
            "environment/expected.txt": "42",
            "environment/private/key": "k",
            "environment/private/read.me": "r",
        },
    )
    (folder / "environment/empty").mkdir()
    (folder / "solution/solve.sh").write_text("#!/bin/sh\n")

    assert "doing nothing earns 1, as much as the solution" in oracle(folder)


@needs_bwrap
def test_a_file_that_is_left_out_cannot_be_copied(a_task):
    folder = a_task(
        toml="\n",
        environment__Dockerfile="FROM debian\nWORKDIR /app\nCOPY a.txt ./\n",
        **{"environment/.dockerignore": "*.txt\n", "environment/a.txt": "a"},
    )

    assert "environment/Dockerfile:3: COPY finds none of a.txt." in oracle(folder)


@needs_bwrap
def test_a_copy_of_a_link_is_what_the_link_leads_to(a_task):
    test = """\
    #!/bin/sh
    cat /app/a.txt /app/b.txt /data/c.txt && [ ! -L /app/a.txt ] && [ ! -L /data ] && reward=1
    echo ${reward:-0} > /logs/verifier/reward.txt
    """
    dockerfile = "FROM debian\nWORKDIR /app\nCOPY a.txt ./\nCOPY b* ./\nCOPY folder /data/\n"
    files = {"environment/Dockerfile": dockerfile, "environment/real/c.txt": "c"}
    folder = a_task(test, toml="\n", **files)
    environment = folder / "environment"
    for name in ("a.txt", "b.txt"):
        (environment / name).symlink_to("real/c.txt")
    (environment / "folder").symlink_to("real")
    (folder / "solution/solve.sh").write_text("#!/bin/sh\n")

    assert "doing nothing earns 1, as much as the solution" in oracle(folder)


@pytest.fixture
def shared(a_task, tmp_path) -> tuple[Path, Path]:
    """A task whose tests and solution are links to folders elsewhere, and that folder."""
    folder, elsewhere = a_task(), tmp_path / "elsewhere"
    for name in ("tests", "solution"):
        shutil.move(folder / name, elsewhere / name)
        (folder / name).symlink_to(elsewhere / name)
    return folder, elsewhere


@needs_bwrap
def test_tests_and_a_solution_may_be_links_to_folders(shared):
    folder, _ = shared

    assert "1 tasks, 0 of them with a problem" in oracle(folder)


def test_a_digest_changes_with_tests_that_a_link_leads_to(shared):
    folder, elsewhere = shared
    before = digest_of(folder)
    (elsewhere / "tests" / "test.sh").write_text("#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n")

    assert digest_of(folder) != before
