"""What a build takes of environment/."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from trinity_envs_harbor.commands import app
from trinity_envs_harbor.ignored import Ignored, context_of
from trinity_envs_harbor.prepared import problems_of
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
        ("**.pyc", ["x.pyc", "a/.pyc"], ["x.pyc.txt", "pyc"]),
        ("**a*", ["a", "ab", "x/ab"], ["xa", "x/ba"]),
        ("a**b", ["ab", "a/b", "ax/b"], ["axb", "a/xb"]),
        ("a**", ["a", "ab", "a/b"], ["b"]),
        ("../x", [], ["x"]),
        ("/../x", ["x"], []),
        ("a\x0cb\nc\u2028d", ["a\x0cb", "c\u2028d"], ["a", "b", "c", "d"]),
    ],
)
def test_patterns_are_those_of_docker(patterns, ignored, kept):
    found = Ignored.of(patterns)

    assert [path for path in [*ignored, *kept] if found.matches(path)] == ignored


@pytest.mark.parametrize("pattern", ["[z-a]*", r"[a-\d]", r"[\]", "[ab", "ab\\"])
def test_a_pattern_that_cannot_be_read_is_named_with_its_line(a_task, pattern):
    file = {"environment/.dockerignore": f"# all\n\n{pattern}\n"}
    folder = a_task(toml="\n", environment__Dockerfile=DOCKERFILE, **file)
    _, [problem] = problems_of(folder, {"*": "host"})

    said = f"environment/.dockerignore:3: the pattern {pattern!r} cannot be read: "
    assert str(problem).startswith(f"{folder}/{said}")
    assert problems_of(folder, {}, in_container=True)[1] == []


def test_more_can_be_made_in_the_copy_of_a_folder_that_nobody_may_write(tmp_path):
    shut = tmp_path / "environment/data"
    (shut / "below").mkdir(parents=True)
    (tmp_path / "environment/.dockerignore").write_text("none\n")
    shut.chmod(0o555)
    made = context_of(tmp_path / "environment", tmp_path / "made")

    assert [(made / name).stat().st_mode & 0o777 for name in ("data", "data/below")] == [
        *(0o755, shut.joinpath("below").stat().st_mode & 0o777),
    ]


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


@needs_bwrap
def test_a_pipe_is_not_copied_and_no_mode_reaches_a_file_of_this_machine(a_task, tmp_path):
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    run, copy = f"RUN ln -s {secret} x", "COPY --chmod=777 pipe /app/x"
    dockerfile = f"FROM debian\nWORKDIR /app\n{run}\n{copy}\n"
    folder = a_task(toml="\n", environment__Dockerfile=dockerfile)
    os.mkfifo(folder / "environment/pipe")

    assert "environment/Dockerfile:4: COPY finds none of pipe." in oracle(folder)
    assert secret.stat().st_mode & 0o777 == 0o600
