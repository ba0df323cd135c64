"""Who may look, and what nobody sees."""

from __future__ import annotations

import pytest

from .conftest import TOKEN


@pytest.mark.parametrize("path", ["/", "/wrong/", "/run/0", f"/{TOKEN}x/run/0", "/a-token"[:-1]])
def test_an_address_without_the_token_shows_nothing(path, built, browse) -> None:
    answer = browse(built.path).client.get(path)

    assert answer.status_code == 403
    assert "rft" not in answer.text


HOSTS = ["evil.example", "127.0.0.1.evil.example", "evil.example:80", ""]


@pytest.mark.parametrize("host", HOSTS)
def test_another_name_for_this_machine_is_refused(host, built, browse) -> None:
    answer = browse(built.path).client.get(f"/{TOKEN}/", headers={"host": host})

    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8502", "localhost:9", "[::1]:8502"])
def test_the_names_of_this_machine_are_known(host, built, browse) -> None:
    assert browse(built.path).client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(method, built, browse) -> None:
    assert browse(built.path).client.request(method, f"/{TOKEN}/run/0").status_code == 405


def test_a_page_may_load_our_two_files_and_nothing_else(built, browse) -> None:
    client = browse(built.path).client

    policy = client.get(f"/{TOKEN}/run/0").headers["content-security-policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert (
        client.get(f"/{TOKEN}/static/script.js").headers["content-type"].startswith("text/javasc")
    )
    for other in ("server.py", "..%2Fserver.py", "../pages.py"):
        assert client.get(f"/{TOKEN}/static/{other}").status_code == 404


def test_keys_and_passwords_are_shown_nowhere(built, browse) -> None:
    built.status(status="failed", error="401 for hush-hush-2 at https://me:hush-hush-3@host")
    (built.path / "trinity.log").write_text(
        "2030-01-02 10:00:00,000 ERROR trinity.x: env MY_KEY=hush-hush-1\ntoken hush-hush-2\n"
    )
    page = browse(built.path)

    html = "".join(page.html(path) for path in ("", "failures", "provenance"))

    assert "hush" not in html
    assert "401 for **** at https://me:****@host" in html
    assert "****" in page.text("provenance")


def test_the_viewer_changes_nothing_in_a_run_directory(built, browse) -> None:
    def state():
        return {path: path.stat().st_mtime_ns for path in sorted(built.path.rglob("*"))}

    before, page = state(), browse(built.path)
    for path in ("", "step/1", "task/1/0", "rollouts", "exchanges/1/0/0", "failures", "provenance"):
        page.html(path)

    assert state() == before
