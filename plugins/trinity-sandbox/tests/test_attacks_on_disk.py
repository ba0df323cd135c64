"""What a program leaves on the disk, and how much of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from trinity.errors import EnvError
from trinity_sandbox import base, disk, trees

from .conftest import BINDS, LIMITS, PROGRAM, ran

DEEP = "import os\nfor _ in range(1200):\n    os.mkdir('d')\n    os.chdir('d')\n"
# Who may run a program and not read it may not see what it has open.
HIDDEN = """
with open('/bin/sleep', 'rb') as source, open('sleep', 'wb', opener=lambda *path: os.open(
    path[0], NEW, 0o111)) as copy:
    copy.write(source.read())
f = os.open('f', NEW); os.unlink('f'); write(f, 8 << 20); os.set_inheritable(f, True)
os.execv('sleep', ['sleep', '4'])
"""
SHUT = """
import os, time
os.mkdir('shut', 0o300)
os.mkdir('none', 0)
time.sleep(0.4)
print(oct(os.stat('shut').st_mode), oct(os.stat('none').st_mode))
"""
SOME = replace(LIMITS, file_bytes=16 << 20, disk_bytes=4 << 20, wall_s=5, cpu_s=5)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path_factory):
    """Return where sessions have their folders, short enough for each of their paths."""
    tmp_path_factory.getbasetemp()  # not below it
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
        "write(0, 8 << 20)",
        HIDDEN,
    ],
    ids=[
        *("many", "deleted", "without a name", "below 4,096 characters", "in a shut folder"),
        *("in the input", "of a program that cannot be read"),
    ],
)
def test_files_are_limited_together_wherever_they_are(sandbox, folder, monkeypatch, writes):
    free = iter([1 << 40])
    monkeypatch.setattr(disk, "_free", lambda folder: next(free, 0))  # whatever others do
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


@pytest.mark.parametrize("lost", [0, 1 << 30], ids=["the disk lost nothing", "and much"])
def test_a_folder_that_moves_at_each_count_hides_no_file(folder, monkeypatch, lost):
    for number in range(3):
        (folder / f"d{number}").mkdir()
    places = [folder / name for step, _, name in trees.walk(folder) if step == trees.ENTER]
    moves = places.pop(0) / "moves"
    moves.mkdir()
    (moves / "file").touch()
    (places.pop() / "counted last").write_bytes(bytes(100_000))
    looked_at, size = (moves / "file").stat().st_ino, disk._size
    at = [moves, places.pop() / "moves"]

    def moves_it(found):
        if found.st_ino == looked_at:
            at[0].rename(at[1])
            at.reverse()
        return size(found)

    free = iter([lost])
    monkeypatch.setattr(disk, "_size", moves_it)
    monkeypatch.setattr(disk, "_free", lambda folder: next(free, 0))
    with tempfile.TemporaryFile() as stdin:
        looks = disk.DiskLimit(folder, 50_000, stdin.fileno())

        found = [looks.passed([]) for _ in range(5)]

        looks.close()
    assert found == ["", "", "", "", "disk" if lost else ""]


def test_a_folder_that_was_deleted_while_it_was_counted_has_nothing_more(folder):
    for name in ("a", "b"):
        (folder / name).mkdir()
        (folder / name / "file").touch()
    steps = []
    for step, at, _ in trees.walk(folder):
        steps.append(step)
        if step == trees.FILE:
            shutil.rmtree(os.readlink(f"/proc/self/fd/{at}"))

    assert steps == [trees.ENTER, trees.FILE, trees.LEAVE] * 2


def test_folders_have_the_modes_that_their_program_gave_them(sandbox):
    with sandbox.open(binds=BINDS, limits=SOME) as session:
        outcome = session.run([PROGRAM, "-ISBc", SHUT])
        disk.bytes_in(session.folder)
        modes = [(session.folder / name).stat().st_mode & 0o777 for name in ("shut", "none")]

    assert outcome.stdout == b"0o40300 0o40000\n"
    assert modes == [0o300, 0]


def test_folders_have_their_modes_again_when_a_look_ends_within_them(folder):
    inner = folder / "shut" / "none" / "deep"
    inner.mkdir(parents=True)
    (inner / "file").write_bytes(b"")
    modes = {inner: 0o100, inner.parent: 0o200, inner.parent.parent: 0o300}
    for path, mode in modes.items():
        path.chmod(mode)
    steps = trees.walk(folder, opens=os.R_OK | os.X_OK, shut=trees.BORROW)

    assert any(name == "file" for _, _, name in steps)

    steps.close()
    for path, mode in reversed(modes.items()):
        assert path.stat().st_mode & 0o777 == mode
        path.chmod(0o700)


def test_what_a_command_reads_is_not_what_it_wrote(sandbox):
    with sandbox.open(binds=BINDS, limits=SOME) as session:
        source = "import time; time.sleep(0.3); print(len(input()))"
        outcome = session.run([PROGRAM, "-ISBc", source], stdin=bytes(8 << 20))

    assert (outcome.stdout, outcome.reason) == (b"8388608\n", "")


def test_a_look_at_many_files_takes_a_moment_and_goes_on_at_the_next(folder, monkeypatch):
    for number in range(10):
        (folder / f"{number}").write_bytes(bytes(4096))
    monkeypatch.setattr(disk, "_LOOKS_S", -1.0)  # each look sees one file, of 4,096 + 512 bytes
    monkeypatch.setattr(disk, "_LOOKS_LONGER_S", -1.0)  # others may write to the disk meanwhile
    with tempfile.TemporaryFile() as stdin:
        looks = disk.DiskLimit(folder, 20_000, stdin.fileno())

        found = [looks.passed([]) for _ in range(5)]

        looks.close()
    assert found == ["", "", "", "", "disk"]


def test_a_test_is_no_wrong_answer_where_the_disk_was_full_before(sandbox, monkeypatch):
    monkeypatch.setattr(base, "is_nearly_full", lambda folder: True)
    monkeypatch.setattr(base, "kept_free", lambda folder: 256 << 20)

    with pytest.raises(EnvError, match=r"less than 256 MB are left on the disk of .*TMPDIR"):
        ran(sandbox, "print(1)", disk_bytes=1 << 20)
    assert ran(sandbox, "print(1)").stdout == b"1\n"


@pytest.mark.parametrize(
    ("size", "left", "is_full"),
    [
        (2**40, 255 << 20, True),
        (2**40, 257 << 20, False),
        (128 << 20, 14 << 20, False),  # a tenth: 12.8 MB
        (128 << 20, 12 << 20, True),
        (0, 0, False),  # it tells nothing
    ],
)
def test_a_part_of_each_disk_is_kept_free(folder, monkeypatch, size, left, is_full):
    told = SimpleNamespace(f_blocks=size >> 10, f_frsize=1024, f_bavail=left >> 10)
    monkeypatch.setattr(os, "statvfs", lambda folder: told)

    assert disk.is_nearly_full(folder) is is_full


def test_files_beyond_their_limit_are_told_from_a_disk_that_others_filled(sandbox, monkeypatch):
    monkeypatch.setattr(disk, "is_nearly_full", lambda folder: (folder / "written").exists())
    source = "import os, time\nos.posix_fallocate(os.open('f', 66), 0, N)\n"
    source += "open('written', 'w')\ntime.sleep(4)"
    reasons = []
    for size in (1 << 20, 8 << 20):
        with sandbox.open(binds=BINDS, limits=SOME) as session:
            words = source.replace("N", str(size))
            reasons.append(session.run([PROGRAM, "-ISBc", words]).reason)

    assert reasons == ["disk_full", "disk"]
