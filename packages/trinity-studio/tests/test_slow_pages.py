"""A page that takes long keeps no other from its turn, and one of many calls is cut into pages."""

from __future__ import annotations

import asyncio
import shutil
import threading

from markupsafe import Markup

from .conftest import a_row


def has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def test_pages_are_drawn_beside_the_loop_that_answers(built, browse, monkeypatch) -> None:
    seen = []

    def shown(value: object, limit: int = 0) -> Markup:
        seen.append(has_loop())
        return Markup.escape(str(value))

    monkeypatch.setattr("trinity_studio.view.pages.shown", shown)
    browse(built.path).html("step/1")

    assert seen
    assert not any(seen)


def test_a_table_of_many_runs_comes_at_once_and_tells_which_it_has_not_read(
    built, browse, tmp_path
) -> None:
    built.metrics({"step": 1, "role": "trainer", "actor/loss": 0.5})
    for number in range(11):
        shutil.copytree(built.path, tmp_path / "many" / f"run-{number:02}")
    page = browse(tmp_path / "many")

    first = page.html("/")
    for thread in threading.enumerate():
        if thread.name == "trinity-view-rows":
            thread.join(30)
    whole = page.html("/")

    assert "3 of 11 runs are still being read" in first
    assert 'http-equiv="refresh"' in first
    assert ("run-07" in first, "run-08" in first) == (True, False)
    assert "still being read" not in whole
    assert 'http-equiv="refresh"' not in whole
    assert all(f"run-{number:02}" in whole for number in range(11))


def test_the_calls_of_a_try_are_shown_a_hundred_on_a_page(built, browse) -> None:
    calls = [{"request": str(n), "continues": str(max(0, n - 1))} for n in range(230)]
    rows = [a_row(batch=9, info=info, response_text=f"<{n}>") for n, info in enumerate(calls)]
    for step, row in enumerate(rows):
        row.eid.step = step
    built.rollouts(*rows)
    page = browse(built.path)

    pages = [page.html(f"exchanges/9/0/0?page={number}") for number in range(4)]

    assert [html.count('<div class="exchange') for html in pages] == [100, 100, 30, 0]
    assert "&lt;100&gt;" in pages[1]
    assert "230 requests, 100 on a page" in pages[0]
    assert 'href="?page=1" rel="next">later' in pages[0]
    assert "page 3 of 3" in pages[2]
