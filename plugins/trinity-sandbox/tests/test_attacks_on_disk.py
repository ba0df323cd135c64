"""What a program leaves on the disk, and how much of it."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from trinity.errors import EnvError
from trinity_sandbox import base, disk

from .conftest import BINDS, LIMITS, PROGRAM, ran

DEEP = "import os\nfor _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')\n"
SOME = replace(LIMITS, file_bytes=16 << 20, disk_bytes=4 << 20, wall_s=5, cpu_s=5)


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """Return where sessions have their folders, short enough for each of their paths."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def test_folders_deeper_than_python_recurses_are_used_and_deleted(sandbox, folder):
    with sandbox.open(binds=BINDS, limits=LIMITS) as session:
        assert session.run([PROGRAM, "-ISBc", f"{DEEP}open('file', 'w')"]).exit == 0
        told = session.run([PROGRAM, "-ISBc", "import os; print(os.listdir())"])

    assert b"'d'" in told.stdout
    assert os.listdir(folder) == []


def test_folders_that_a_program_shut_are_deleted_and_no_link_in_them_is_followed(
    sandbox, folder, tmp_path
):
    outside = tmp_path / "file"
    outside.write_text("x")
    outside.chmod(0o600)
    source = f"""
    import os
    os.makedirs('a/b')
    os.symlink({str(outside)!r}, 'a/b/link')
    os.symlink({str(tmp_path)!r}, 'a/folder')
    os.mkdir('c', 0)
    for path, mode in (('a/b', 0o500), ('a', 0), ('.', 0)):
        try:
            os.chmod(path, mode)
        except PermissionError:
            print('denied')
    """

    outcome = ran(sandbox, source)

    assert outcome.exit == 0
    assert outside.stat().st_mode & 0o777 == 0o600
    assert outside.read_text() == "x"
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    "writes",
    [
        "for n in range(32): write(os.open(f'f{n}', NEW), 1 << 20)",
        "f = os.open('f', NEW); os.unlink('f'); write(f, 8 << 20)",
        "f = os.open('.', os.O_TMPFILE | os.O_RDWR); write(f, 8 << 20)",
        "for _ in range(50): os.mkdir('d' * 100); os.chdir('d' * 100)\nwrite(os.open('f', NEW), N)",
        "os.mkdir('shut', 0o300); write(os.open('shut/f', NEW), 8 << 20)",
    ],
    ids=["many", "deleted", "without a name", "below 4,096 characters", "in a shut folder"],
)
def test_files_are_limited_together_wherever_they_are(sandbox, folder, writes):
    source = f"""
import os, time
N, NEW = 8 << 20, os.O_CREAT | os.O_RDWR
def write(file, size):
    os.posix_fallocate(file, 0, size)
{writes}
time.sleep(4)
"""

    with sandbox.open(binds=BINDS, limits=SOME) as session:
        outcome = session.run([PROGRAM, "-ISBc", source])

    assert outcome.reason == "disk"
    assert os.listdir(folder) == []


def test_what_a_command_reads_is_not_what_it_wrote(sandbox):
    with sandbox.open(binds=BINDS, limits=SOME) as session:
        source = "import time; time.sleep(0.3); print(len(input()))"
        outcome = session.run([PROGRAM, "-ISBc", source], stdin=bytes(8 << 20))

    assert (outcome.stdout, outcome.reason) == (b"8388608\n", "")


def test_a_look_at_many_files_takes_a_moment_and_goes_on_at_the_next(folder, monkeypatch):
    for number in range(10):
        (folder / f"{number}").write_bytes(bytes(4096))
    monkeypatch.setattr(disk, "_LOOKS_S", -1.0)  # each look sees one file, of 4,096 + 512 bytes
    with tempfile.TemporaryFile() as stdin:
        looks = disk.DiskLimit(folder, 20_000, stdin.fileno())

        found = [looks.is_passed([]) for _ in range(5)]

        looks.close()
    assert found == [False, False, False, False, True]


def test_a_test_is_no_wrong_answer_where_the_disk_was_full_before(sandbox, monkeypatch):
    monkeypatch.setattr(base, "is_nearly_full", lambda folder: True)

    with pytest.raises(EnvError, match=r"less than 256 MB are left on the disk of .*TMPDIR"):
        ran(sandbox, "print(1)", disk_bytes=1 << 20)
    assert ran(sandbox, "print(1)").stdout == b"1\n"
