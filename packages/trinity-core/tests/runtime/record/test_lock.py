"""A run directory belongs to one run at a time."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap

import pytest
from trinity.errors import ConfigError
from trinity.runtime.record.lock import Owner, owners, run_lock


def written(path, **changes):
    """Write a lock of this living process, changed, and return its file."""
    own = Owner.of_this_process()
    values = {"host": own.host, "pid": own.pid, "started": own.started, "since": "<NOW>"}
    file = path / "run.lock"
    file.write_text(json.dumps(values | changes))
    return file


def test_a_lock_is_there_inside_and_gone_after_whatever_happens(tmp_path) -> None:
    def is_stopped() -> None:
        with run_lock(tmp_path, say=print):
            assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        is_stopped()

    assert [path.name for path in tmp_path.iterdir()] == [".run.lock"]  # guards the next look


def test_a_living_owner_is_named_and_keeps_its_lock(tmp_path, golden) -> None:
    lock = written(tmp_path)

    with pytest.raises(ConfigError) as caught, run_lock(tmp_path, say=print):
        pass

    golden(
        str(caught.value), "run_directory_in_use",
        TMP=tmp_path, PID=os.getpid(), HOST=socket.gethostname(),
    )  # fmt: skip
    assert lock.exists()


def test_nobody_knows_whether_an_owner_on_another_host_lives(tmp_path, golden) -> None:
    written(tmp_path, host="another", pid=1)

    with pytest.raises(ConfigError) as caught, run_lock(tmp_path, say=print):
        pass

    golden(str(caught.value), "run_directory_in_use_elsewhere", TMP=tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"pid": 2**22 + 1}, id="the process is gone"),
        pytest.param({"started": "another boot 1"}, id="its number is another process's"),
    ],
)
def test_the_lock_of_a_dead_owner_is_taken_over_with_one_line(changes, tmp_path) -> None:
    lock, said = written(tmp_path, **changes), []
    pid = changes.get("pid", os.getpid())

    with run_lock(tmp_path, say=said.append):
        assert json.loads(lock.read_text())["since"] != "<NOW>"

    assert said == [
        f"{tmp_path} was held by process {pid} since <NOW>, which ended without saying so: it is "
        f"taken over"
    ]


def test_a_killed_process_that_nobody_waited_for_is_dead(tmp_path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
        written(tmp_path, pid=process.pid)

        with run_lock(tmp_path, say=lambda _: None):
            pass


def test_a_lock_that_a_kill_left_empty_is_nobodys(tmp_path) -> None:
    (tmp_path / "run.lock").write_text("")

    with run_lock(tmp_path, say=print):
        pass


def test_of_many_that_start_at_once_one_wins(tmp_path) -> None:
    written(tmp_path, pid=2**22 + 1)
    source = textwrap.dedent("""
        import sys
        from pathlib import Path
        from trinity.errors import ConfigError
        from trinity.runtime.record.lock import run_lock
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            with run_lock(Path(sys.argv[1]), say=lambda _: None):
                print("won", flush=True)
                sys.stdin.readline()
        except ConfigError:
            print("lost", flush=True)
    """)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", source, tmp_path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(4)
    ]  # fmt: skip
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    ends = [process.stdout.readline().strip() for process in processes]
    for process in processes:
        process.communicate("\n")

    assert sorted(ends) == ["lost", "lost", "lost", "won"]


def test_a_lock_that_is_no_text_is_nobodys(tmp_path) -> None:
    (tmp_path / "run.lock").write_bytes(b"\xff\xfe\x00")

    with run_lock(tmp_path, say=print):
        assert json.loads((tmp_path / "run.lock").read_text())["pid"] == os.getpid()


def test_a_lock_that_cannot_be_taken_away_hides_no_error(tmp_path, monkeypatch) -> None:
    def fails() -> None:
        with run_lock(tmp_path, say=print):
            monkeypatch.setattr("trinity.runtime.record.lock.Path.open", refuse)
            raise KeyError("the error of the run")

    def refuse(*_args, **_options):
        raise OSError(30, "Read-only file system")

    with pytest.raises(KeyError):
        fails()


def test_a_lock_that_is_a_folder_is_told_as_what_cannot_be_opened(tmp_path, golden) -> None:
    (tmp_path / "run.lock").mkdir()

    with pytest.raises(ConfigError) as caught, run_lock(tmp_path, say=print):
        pass

    golden(str(caught.value), "lock_is_a_folder", TMP=tmp_path)


def test_a_file_system_without_locks_of_its_own_needs_none(tmp_path, monkeypatch) -> None:
    def refuse(*_args, **_options):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("trinity.runtime.record.lock.FileLock.acquire", refuse)

    with run_lock(tmp_path, say=print), pytest.raises(ConfigError), run_lock(tmp_path, say=print):
        pass


def test_a_process_that_outlives_its_killed_parent_has_no_lock(tmp_path) -> None:
    source = textwrap.dedent("""
        import os, sys, time
        from pathlib import Path
        from trinity.runtime.record.lock import run_lock
        with run_lock(Path(sys.argv[1]), say=print):
            child = os.fork()
            if child:
                print(child, flush=True)
            time.sleep(60)
    """)
    command = [sys.executable, "-c", source, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        process.kill()
        process.stdout.close()
    said = []

    with run_lock(tmp_path, say=said.append):
        os.kill(child, signal.SIGKILL)

    assert "taken over" in said[0]


def test_processes_that_start_at_once_have_it_one_at_a_time(tmp_path) -> None:
    program = textwrap.dedent(
        f"""
        import os, pathlib, time
        from trinity.errors import ConfigError
        from trinity.runtime.record.lock import run_lock
        place = pathlib.Path({str(tmp_path)!r})
        for _ in range(300):
            try:
                with run_lock(place, say=print):
                    os.close(os.open(place / "inside", os.O_CREAT | os.O_EXCL))
                    os.unlink(place / "inside")
            except ConfigError:
                pass
        """
    )
    starts = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]

    assert [process.wait(60) for process in starts] == [0, 0, 0]


def test_sides_apart_hold_a_part_each(tmp_path) -> None:
    with (
        run_lock(tmp_path, say=print, part="trainer"),
        run_lock(tmp_path, say=print, part="one"),
        run_lock(tmp_path, say=print, part="two"),
    ):
        assert set(owners(tmp_path)) == {"trainer", "one", "two"}
        with pytest.raises(ConfigError, match="in use by process"):
            take(tmp_path, part="one")
        with pytest.raises(ConfigError, match="in use by process"):
            take(tmp_path)

    with run_lock(tmp_path, say=print), pytest.raises(ConfigError, match="in use by process"):
        take(tmp_path, part="trainer")
    assert owners(tmp_path) == {}


def take(directory, part=""):
    with run_lock(directory, say=print, part=part):
        pass
