"""``trinity view``: what it opens, where it listens, and what it writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import yaml
from trinity.extend import get_manager, set_manager
from trinity_ledger.address import address_of
from trinity_ledger.sqlite import SqliteDatabase
from trinity_studio.view.run import find_runs
from trinity_studio.view_command import _of_url
from typer.testing import CliRunner


def call(*arguments: object):
    from trinity.cli.main import app

    return CliRunner().invoke(app, ["view", *map(str, arguments)])


def test_a_report_is_one_file_with_curves_samples_failures_and_settings(built, tmp_path) -> None:
    ended = call(built.path, "--export", tmp_path / "report.html")

    html = (tmp_path / "report.html").read_text("utf-8")
    assert ended.output.startswith(f"wrote {tmp_path / 'report.html'}: 1 run, ")
    assert "<svg" in html
    assert "Samples of step 2, the last" in html
    assert "my-dist" in html
    assert "hush" not in html
    assert "<script" not in html
    assert "<link" not in html


def test_a_report_takes_the_place_of_an_older_one_and_leaves_no_file_beside_it(
    built, tmp_path
) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    report = folder / "report.html"
    report.write_text("<!DOCTYPE html><p>older")
    report.chmod(0o600)

    assert call(built.path, "--export", report).exit_code == 0

    assert report.read_bytes().startswith(b"<!doctype html>\n<html")
    assert report.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in folder.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("p/rft/run.json", "lies in the run directory"),
        ("p/rft/report.html", "lies in the run directory"),
        ("link/run.json", "lies in the run directory"),
        ("other.db", "is the ledger that is read"),
        ("other.db-wal", "where SQLite keeps a part of it"),
        ("named.db", "is the ledger that is read"),
        ("notes.txt", "is no report: it does not begin as HTML"),
        ("p", "is no file"),
        ("socket", "is no file"),
        ("circle", "Symlink loop"),
    ],
)
def test_a_report_takes_the_place_of_nothing_else(built, tmp_path, target, why) -> None:
    (tmp_path / "link").symlink_to(built.path)
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "notes.txt").write_text("mine")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
    for name in ("other.db", "named.db"):
        database = SqliteDatabase(tmp_path / name)
        database.read(lambda rows: rows.all("SELECT * FROM run"))
        database.close()
    buffer = {"experience_buffer": {"storage_type": "sql", "path": str(tmp_path / "named.db")}}
    (built.path / "config.yaml").write_text(yaml.safe_dump({"buffer": {"trainer_input": buffer}}))
    before = _files(tmp_path)

    url = f"sqlite:///{tmp_path}/other.db"
    ended = call(built.path, "--url", url, "--export", tmp_path / target)

    assert ended.exit_code != 0
    assert why in str(ended.exception)
    assert "Name another file; nothing was written." in str(ended.exception)
    assert _files(tmp_path) == before


@pytest.mark.acceptance
def test_an_empty_file_and_what_the_user_pipes_into_are_written_to(built, tmp_path) -> None:
    (tmp_path / "empty.html").touch()
    os.mkfifo(tmp_path / "pipe")

    assert call(built.path, "--export", tmp_path / "empty.html").exit_code == 0
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        assert call(built.path, "--export", tmp_path / "pipe").exit_code == 0
        piped = reader.stdout.read()
    command = [sys.executable, "-m", "trinity", "view", built.path, "--export", "/dev/stdout"]
    printed = subprocess.run(command, capture_output=True, check=True)

    for html in ((tmp_path / "empty.html").read_bytes(), piped, printed.stdout):
        assert html.startswith(b"<!doctype html>")
        assert html.rstrip().endswith(b"</html>")
    assert printed.stderr.startswith(b"wrote /dev/stdout: 1 run, ")
    assert (tmp_path / "pipe").is_fifo()


def _files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_published_address_of_a_database_in_a_run_opens_the_run(built, tmp_path) -> None:
    url = f"sqlite:///{built.path}/buffer/explorer_output.db"

    ended = call("--url", url, "--table", "pipeline_input", "--export", tmp_path / "r.html")

    assert "--table pipeline_input is not needed" in ended.output
    assert (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nowhere"], "there is no folder nowhere, seen from here"),
        (["--url", "nowhere/run.db"], "Give sqlite:///FILE or postgresql://USER@HOST/NAME"),
        (["--url", "sqlite:///nowhere/run.db"], "--url names nowhere/run.db, which is not there"),
        (["--url", "mysql://me:hush-hush@host/x"], "names no file and no PostgreSQL database"),
    ],
)
def test_what_is_no_run_is_said_with_what_to_name(arguments, part) -> None:
    said = str(call(*arguments).exception)
    assert part in said
    assert "hush" not in said


def test_a_port_that_is_taken_is_said_with_the_way_out(built) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = str(call(built.path, "--port", taken.getsockname()[1]).exception)

    assert "Choose another with --port" in said


def test_without_the_studio_the_line_that_installs_it_is_printed() -> None:
    before = set_manager(get_manager().narrowed(disabled=["studio"]))
    try:
        said = str(call("x").exception)
    finally:
        set_manager(before)

    assert said.startswith(
        "trinity view is part of trinity-studio. Run: python -m pip install trinity-studio"
    )


def test_the_server_listens_at_this_machine_alone_and_its_address_has_the_token(built) -> None:
    command = [sys.executable, "-m", "trinity", "view", str(built.path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip()
            assert server.stdout.readline().startswith("Open that address")
            root, _, token = address.rstrip("/").rpartition("/")
            assert root.startswith("http://127.0.0.1:")
            assert len(token) == 24
            page = urllib.request.urlopen(address).read().decode()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(root + "/")
        finally:
            server.terminate()

    assert "rft" in page


def test_a_database_in_a_folder_called_buffer_that_is_no_runs_is_read_itself(tmp_path) -> None:
    file = tmp_path / "buffer" / "mine.db"
    file.parent.mkdir()
    file.touch()

    assert _of_url(f"sqlite:///{file}") == address_of(f"sqlite:///{file}")


def test_a_plain_run_hides_no_staged_and_no_grouped_run_beside_it(tmp_path):
    places = ("plain", "staged/sft", "staged/grpo", "g20/sweep/ray", "g20/sweep/local/grpo")
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "run.json").write_text("{}")
    (tmp_path / "plain" / "global_step_2" / "buffer").mkdir(parents=True)

    found = find_runs([tmp_path])

    assert {run.name for run in found} == set(places)


def test_a_run_keeps_its_name_when_others_come_beside_it(tmp_path):
    def names(*places):
        for place in places:
            (tmp_path / "runs" / place).mkdir(parents=True)
            (tmp_path / "runs" / place / "run.json").write_text("{}")
        return [run.name for run in find_runs([tmp_path / "runs"])]

    assert names("sweep/grpo-s0") == ["sweep/grpo-s0"]
    assert names("g20/sweep/ray") == ["g20/sweep/ray", "sweep/grpo-s0"]
