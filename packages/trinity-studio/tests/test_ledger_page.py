"""A run that keeps a ledger shows it, from a file or a server; what it is kept in is as before."""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import uuid
from functools import partial
from html import unescape

import pytest
import typer
import yaml
from starlette.testclient import TestClient
from trinity.cli.main import app
from trinity.errors import DataError
from trinity_ledger.address import address_of
from trinity_ledger.ledger import Ledger
from trinity_ledger.opening import open_database
from trinity_ledger.sqlite import SqliteDatabase
from trinity_studio.studio.server import served
from trinity_studio.view.ledger import read_experiences
from trinity_studio.view.run import find_runs
from trinity_studio.view.server import app_of
from typer.testing import CliRunner

from .conftest import TOKEN, a_row, change

POSTGRES = os.environ.get("TRINITY_TEST_POSTGRES", "")  # a server's URL; nox -s postgres sets it


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.skipif(
    not POSTGRES, reason="nox -s postgres starts the server"))])  # fmt: skip
def ledger_url(request, tmp_path):
    """Return where a ledger may be, elsewhere than in the run directory."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/elsewhere/runs.db"
        return
    import psycopg

    name = f"viewed_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(POSTGRES, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        host = POSTGRES.rpartition("/")[0].replace("postgres@", "postgres:hush-hush-4@")
        yield f"{host}/{name}"
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def filled(database):
    ledger = Ledger(database, name="ledger", run="r")
    hostile = a_row(0, batch=2, response_text="<script>alert(1)</script>\u202e")
    ledger.write([a_row(run, batch=1) for run in range(4)] + [hostile])
    ledger.claim(4, step=1, first=0, may_be_fewer=False)
    return ledger


def with_ledger(built):
    path = built.path / "buffer" / "ledger.db"
    return path, filled(SqliteDatabase(path))


def of_run(built, url):
    values = yaml.safe_load((built.path / "config.yaml").read_text())
    buffer = {"experience_buffer": {"storage_type": "sql", "path": url}}
    values["buffer"] = {"trainer_input": buffer}
    (built.path / "config.yaml").write_text(yaml.safe_dump(values))


def test_steps_tasks_and_what_waits_are_shown_while_the_run_goes_on_and_after(
    built, browse
) -> None:
    path, ledger = with_ledger(built)
    page = browse(built.path)

    for _ in range(2):
        said = page.text("ledger")
        assert "experiences 5 trained 4 dropped 0 waiting 1" in said
        assert "1 4 16 0.5 0 0" in said  # step, rows, tokens, reward, version, age
        assert "1/0 done 4 4 0.5" in said
        ledger.close()

    files = {one.name for one in path.parent.iterdir()}
    assert files == {"ledger.db", "explorer_output.jsonl"}


def test_a_packet_that_is_not_what_was_written_is_said_and_not_shown(built, browse) -> None:
    path, ledger = with_ledger(built)
    ledger.close()
    with sqlite3.connect(path) as file:
        ((number, body),) = file.execute(
            "SELECT id, body FROM packet WHERE id = (SELECT packet FROM experience "
            "WHERE train_step IS NULL)"
        )
        changed = body.replace(b"alert(1)", b"alert(2)")
        file.execute("UPDATE packet SET body = ? WHERE id = ?", (changed, number))
    file.close()

    html = browse(built.path).html("ledger/experiences?step=waiting")

    assert changed != body
    assert f"It is damaged: packet {number} is not what the run wrote" in html
    assert "alert(2)" not in html


def test_a_file_that_is_no_ledger_is_said_and_a_run_without_one_too(built, browse) -> None:
    page = browse(built.path)
    assert "keeps no ledger" in page.text("ledger")
    (built.path / "buffer" / "ledger.db").write_bytes(b"no database" * 100)

    assert "ledger.db cannot be read as a ledger" in page.text("ledger")
    assert "ledger.db cannot be read as a ledger" in page.text("ledger/experiences")


def test_a_ledger_elsewhere_is_read_from_its_address_and_shows_what_was_said(
    built, browse, ledger_url
) -> None:
    ledger = filled(open_database(ledger_url))
    of_run(built, ledger_url)
    page = browse(built.path, may_ask_servers=True)

    said = page.text("ledger")
    assert "experiences 5 trained 4 dropped 0 waiting 1" in said
    assert "1 4 16 0.5 0 0" in said
    assert "1/0 done 4 4 0.5" in said

    waiting = page.html("ledger/experiences?step=waiting")
    assert waiting.count("<article") == 1
    assert "2/0/0/0" in waiting
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in waiting
    assert "\u202e" not in waiting
    assert page.html("ledger/experiences?step=1").count("<article") == 4
    assert "trained in step 1" in page.text("ledger/experiences")
    assert "hush" not in page.html("ledger") + page.html("provenance") + waiting

    ledger.forget_bodies(1, keep_steps=10)
    assert page.text("ledger/experiences?step=1").count("were deleted when they were trained") == 4
    ledger.close()


def test_a_ledger_is_shown_by_its_address_alone(ledger_url) -> None:
    filled(open_database(ledger_url)).close()
    find = partial(find_runs, [])
    app = app_of(find, token=TOKEN, ledgers=[address_of(ledger_url)])
    client = TestClient(app, base_url="http://127.0.0.1:8502")
    pages = [client.get(f"/{TOKEN}/{path}") for path in ("", "ledger/0", "ledger/0/experiences")]

    said = [" ".join(unescape(re.sub(r"<[^>]*>", " ", page.text)).split()) for page in pages]
    assert [page.status_code for page in pages] == [200] * 3
    assert "/ledger/0" in pages[0].text
    assert "train steps" not in said[0]  # no table of runs
    assert "experiences 5 trained 4 dropped 0 waiting 1" in said[1]
    assert "2/0/0/0" in said[2]
    assert not any("hush" in page.text for page in pages)
    assert client.get(f"/{TOKEN}/ledger/1").status_code == 404


def test_a_ledger_alone_is_written_into_one_file(ledger_url, tmp_path) -> None:
    filled(open_database(ledger_url)).close()
    file = tmp_path / "report.html"

    ended = CliRunner().invoke(app, ["view", "--url", ledger_url, "--export", str(file)])

    assert ended.exit_code == 0, ended.output
    assert ended.output.startswith(f"wrote {file}: 1 ledger, ")
    html = file.read_text("utf-8")
    said = " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
    assert "experiences 5 trained 4 dropped 0 waiting 1" in said
    assert "1 4 16 0.5 0 0" in said  # step, rows, tokens, reward, version, age
    assert "1/0 done 4 4 0.5" in said
    assert said.count("prompt <s> say reply") == 5
    assert "<script" not in html
    assert "<a href" not in html
    assert "hush" not in html


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE experience SET reward = 9e999 WHERE id = 1", "reward inf"),
        ("UPDATE experience SET reward = 'lots' WHERE id = 1", "reward lots"),
        ("UPDATE experience SET place = -1", "cannot be read"),
        ("UPDATE experience SET place = 9", "cannot be read"),
        ("UPDATE experience SET place = 'x'", "cannot be read"),
        ("UPDATE experience SET num_tokens = x'00ff'", "tokens"),
        ("UPDATE experience SET version = '<b>\u202e'", "version <b>\\u202e"),
        ("UPDATE experience SET train_step = '<b>\u202e'", "trained in step <b>\\u202e"),
        ("UPDATE packet SET body = 'text'", "cannot be read"),
        ("UPDATE packet SET body = 10000000000", "cannot be read"),
        ("UPDATE task SET batch = x'ff', place = x'00', outcome = 5 WHERE id = 1", "<s> say"),
    ],
    ids=range(11),
)
def test_a_ledger_that_no_run_wrote_is_shown_as_it_is(built, browse, tmp_path, statement, said):
    path, ledger = with_ledger(built)
    ledger.close()
    change(path, statement)
    page = browse(built.path, ledgers=[address_of(str(path))])

    for address in ("ledger", "/ledger/0", "ledger/experiences", "/ledger/0/experiences"):
        html = page.html(address)
        assert "<b>\\" not in html
        assert "\u202e" not in html
    texts = [page.text(f"{one}/experiences") for one in ("ledger", "/ledger/0")]
    assert all(said in re.sub(r"\s+(?=\\)", "", text) for text in texts)
    exported = ["view", "--url", f"sqlite:///{path}", "--export", str(tmp_path / "r.html")]
    (path.parent / "explorer_output.jsonl").unlink()
    path.parent.rename(tmp_path / "alone")
    exported[2] = f"sqlite:///{tmp_path}/alone/ledger.db"
    assert CliRunner().invoke(app, exported).exit_code == 0


def test_a_place_before_the_first_is_no_other_experience(tmp_path) -> None:
    path = tmp_path / "runs.db"
    filled(SqliteDatabase(path)).close()
    change(path, "UPDATE experience SET place = -1 WHERE uid = '1/0/0/0'")

    [shown] = [
        one
        for one in read_experiences(address_of(str(path)), step="", page=0, per_page=9).experiences
        if one["uid"] == "1/0/0/0"
    ]
    assert shown["said"] is None


def test_a_ledger_that_cannot_be_read_is_no_report(tmp_path) -> None:
    (tmp_path / "other.db").write_text("no database")
    url = f"sqlite:///{tmp_path}/other.db"

    ended = CliRunner().invoke(app, ["view", "--url", url, "--export", str(tmp_path / "r.html")])

    assert "other.db cannot be read as a ledger: " in str(ended.exception)
    assert str(ended.exception).endswith("Nothing was written.")
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hush-hush-5@127.0.0.1:9/runs",
        "postgresql://me:ab%zzhush@127.0.0.1:9/runs",  # libpq repeats what it cannot read
        "postgresql://127.0.0.1:9/runs?user=me&sslpassword=hush-hush-6",
    ],
)
def test_a_server_that_does_not_answer_is_said_without_a_password(built, browse, address) -> None:
    of_run(built, address)
    page = browse(built.path, may_ask_servers=True)

    html = page.html("ledger")
    assert "cannot be read as a ledger" in html
    assert "hush" not in html + page.html("provenance")


def test_a_server_that_only_a_run_directory_names_is_not_asked(built, browse, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr("trinity_ledger.opening.open_database", partial(no_server, asked))
    of_run(built, "postgresql://me:hush-hush-8@a-stranger/runs")
    page = browse(built.path)

    for path in ("ledger", "ledger/experiences"):
        html = page.html(path)
        assert "trinity view --databases RUN_DIR" in html
        assert "hush" not in html
    assert asked == []

    known = [address_of("postgresql://me:hush-hush-8@a-stranger/runs")]  # as --url names it
    assert "is away" in browse(built.path, ledgers=known).html("ledger")
    assert "is away" in browse(built.path, may_ask_servers=True).html("ledger/experiences")
    assert len(asked) == 2


def test_trinity_view_with_a_config_asks_its_server_where_the_command_line_says_so(
    built, monkeypatch, tmp_path
) -> None:
    asked, shown = [], []
    monkeypatch.setattr("trinity_ledger.opening.open_database", partial(no_server, asked))

    def note(app, _, *, message, **__):
        shown.append(app)
        typer.echo(message)

    monkeypatch.setattr("trinity_studio.view_command.serve", note)
    of_run(built, "postgresql://me:hush-hush-9@a-stranger/runs")
    file = tmp_path / "mine.yaml"
    names = {"project": "p", "name": "rft", "checkpoint_root_dir": str(tmp_path)}
    file.write_text(yaml.safe_dump(names))

    for options in ([], ["--databases"]):
        ended = CliRunner().invoke(app, ["view", "--config", str(file), "--port", "0", *options])
        token = ended.output.splitlines()[0].rstrip("/").rpartition("/")[2]
        page = TestClient(shown[-1], base_url="http://127.0.0.1:8502").get(f"/{token}/run/0/ledger")
        assert page.status_code == 200
        assert len(asked) == len(options)
    assert "is away" in page.text


def test_the_studios_viewer_asks_servers_where_its_command_line_says_so(built, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr("trinity_ledger.opening.open_database", partial(no_server, asked))
    of_run(built, "postgresql://me:hush-hush-9@a-stranger/runs")
    told = []
    monkeypatch.setattr(
        "trinity_studio.studio_command.serve", lambda app, *_, **__: told.append(app)
    )
    monkeypatch.setattr("trinity_studio.studio_command._runs", lambda: find_runs([built.path]))

    for options in ([], ["--databases"]):
        ended = CliRunner().invoke(app, ["studio", "--port", "0", *options])
        assert ended.exit_code == 0, ended.output
        root = served.view_root
        page = TestClient(told[-1], base_url="http://127.0.0.1:8502").get(f"{root}run/0/ledger")
        assert "trinity studio --databases" in page.text or options
        assert len(asked) == len(options)
    assert "is away" in page.text


def no_server(asked, url, **_):
    asked.append(url)
    raise DataError("the server is away")


@pytest.mark.skipif(not POSTGRES, reason="nox -s postgres starts the server")
def test_a_query_that_a_server_takes_too_long_for_is_ended_and_said(monkeypatch) -> None:
    monkeypatch.setattr("trinity_ledger.postgres.READ_S", 0.1)
    database = open_database(POSTGRES, max_retries=0, is_read_only=True)

    with pytest.raises(DataError, match=r"A query took more than 0\.1 s"):
        database.read(lambda rows: rows.all("SELECT pg_sleep(20)"))
    database.close()


def test_a_query_that_a_file_takes_too_long_for_is_ended_and_said(built, monkeypatch) -> None:
    path, _ = with_ledger(built)
    monkeypatch.setattr("trinity_studio.view.sqlite_file._READ_S", 0.0)
    monkeypatch.setattr("trinity_studio.view.sqlite_file._INSTRUCTIONS", 1)

    page = read_experiences(address_of(str(path)), step="", page=0, per_page=9)

    assert page.problem.endswith("a query took more than 0 s, and was ended")


def test_without_what_reads_it_the_page_says_what_to_install(built, browse, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    of_run(built, "postgresql://me:hush-hush-7@127.0.0.1:9/runs")

    html = browse(built.path, may_ask_servers=True).html("ledger")

    assert "needs psycopg, which is not installed" in html
    assert "hush" not in html


@pytest.mark.parametrize("url", ["", "postgresql://me:hush-hush-7@127.0.0.1:9/runs"])
def test_without_the_plugin_the_page_says_how_to_install_it(
    built, browse, monkeypatch, url
) -> None:
    for module in ("address", "opening"):
        monkeypatch.setitem(sys.modules, f"trinity_ledger.{module}", None)
    of_run(built, url) if url else with_ledger(built)

    page = browse(built.path)

    for path in ("ledger", "ledger/experiences"):
        said = "not installed. Run: python -m pip install trinity-ledger"
        assert said in page.text(path)
    assert "hush" not in page.html("ledger")
    ended = CliRunner().invoke(app, ["view", "--url", url or "sqlite:///runs.db"])
    assert said in str(ended.exception)


def test_a_step_that_no_database_counts_to_is_said(built) -> None:
    path, _ = with_ledger(built)

    for count in (20, 5000):
        page = read_experiences(address_of(str(path)), step="9" * count, page=0, per_page=9)
        assert "cannot be read as a ledger" in page.problem


def test_a_ledger_on_a_server_is_not_changed_by_who_looks(built, browse, ledger_url) -> None:
    database = open_database(ledger_url)
    of_run(built, ledger_url)
    page = browse(built.path, may_ask_servers=True)
    if ledger_url.startswith("postgresql"):  # an empty database stays empty
        assert "cannot be read as a ledger" in page.text("ledger")
        import psycopg

        with psycopg.connect(ledger_url) as server:
            tables = "SELECT COUNT(*) FROM pg_tables WHERE schemaname = current_schema()"
            assert server.execute(tables).fetchone() == (0,)
    filled(database).close()
    counts = database.read(lambda rows: rows.all("SELECT COUNT(*) FROM experience"))
    page.text("ledger")
    assert database.read(lambda rows: rows.all("SELECT COUNT(*) FROM experience")) == counts
    database.close()
