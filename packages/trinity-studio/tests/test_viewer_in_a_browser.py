"""The viewer's charts in a real browser, while the run goes on: ``nox -s studio``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from trinity.runtime.record.lock import run_lock

from .conftest import Built, explored

playwright = pytest.importorskip("playwright.sync_api", reason="run: nox -s studio")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs chromium; on Debian: apt-get install chromium"
    ),
]
WAIT_MS = 60_000
HOSTILE = '<img src=x onerror="document.title=1">'


@contextmanager
def opened(*folders: Path) -> Iterator[tuple[Any, str]]:
    """Give a page of the viewer and its address; what it asks of others, or fails by, fails us."""
    wrong: list[str] = []

    def note(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "blob:")):
            wrong.append(request.url)

    command = [sys.executable, "-m", "trinity", "view", "--port", "0", *map(str, folders)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        playwright.sync_playwright() as driver,
    ):
        try:
            address = server.stdout.readline().strip()
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.on("request", note)
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.goto(address)
            yield page, address
            browser.close()
        finally:
            server.terminate()
    assert wrong == []


def test_charts_zoom_smooth_and_are_kept_and_hostile_names_stay_text(built) -> None:
    built.metrics(*(explored(step, reward=step % 7) for step in range(3, 60)))
    built.metrics({"step": 1, "role": "explorer", HOSTILE: 1.0, "rollout/invalid": 2.0})
    with opened(built.path) as (page, address):
        page.goto(f"{address}run/0/metrics")
        figure = page.locator(".chart", has_text="rollout/reward/mean").first
        figure.locator("canvas").wait_for(timeout=WAIT_MS)
        over = figure.locator(".u-over").bounding_box()
        page.mouse.move(over["x"] + over["width"] / 2, over["y"] + 40)
        value = figure.locator(".u-series .u-value").nth(1)
        assert value.inner_text() not in {"--", "\u2013"}  # beside the pointer

        before = figure.locator("canvas").screenshot()
        page.mouse.down()
        page.mouse.move(over["x"] + over["width"] * 0.7, over["y"] + 40)
        page.mouse.up()
        assert figure.locator("canvas").screenshot() != before
        page.get_by_label("smoothing").fill("10")
        page.get_by_label("log axis").check()
        for kind, begins in (("PNG", b"\x89PNG"), ("SVG", b"<svg"), ("CSV", b"step,")):
            with page.expect_download(timeout=WAIT_MS) as download:
                figure.get_by_text(kind, exact=True).click()
            assert Path(download.value.path()).read_bytes().startswith(begins)

        page.get_by_label("find").fill("invalid")
        assert page.locator(".chart:visible").count() == 1
        page.get_by_label("find").fill("img")
        assert HOSTILE in page.locator("main").inner_text()
        assert page.title() != "1"


def test_the_page_of_a_run_follows_it_and_keeps_what_is_zoomed(tmp_path) -> None:
    run = Built(tmp_path / "p" / "live")
    run.path.mkdir(parents=True)
    run.status(status="running")
    run.metrics(*(explored(step, reward=0.25) for step in (1, 2)))
    with run_lock(run.path, say=print), opened(run.path) as (page, address):
        page.goto(f"{address}run/0")
        page.locator("canvas").first.wait_for(timeout=WAIT_MS)
        page.get_by_label("smoothing").fill("5")
        page.evaluate("document.querySelector('.chart').dataset.mine = '1'")

        run.metrics(explored(3, reward=0.75))

        page.get_by_text("0.75").first.wait_for(timeout=WAIT_MS)
        assert page.locator(".chart[data-mine] canvas").count() == 1
        assert page.get_by_label("smoothing").input_value() == "5"
        shown = "document.querySelector('.chart canvas').getAttribute('aria-label')"
        page.wait_for_function(f"{shown}.includes('0.75')", timeout=WAIT_MS)


def test_seeds_are_a_band_and_single_runs_are_shown_on_request(tmp_path) -> None:
    for seed in (0, 1, 2):
        run = Built(tmp_path / "p" / f"s{seed}")
        run.path.mkdir(parents=True)
        run.status()
        (run.path / "config.yaml").write_text(json.dumps({"name": f"s{seed}", "seed": seed}))
        run.metrics(*(explored(step, reward=step + seed) for step in range(9)))
    with opened(tmp_path) as (page, _):
        page.get_by_role("button", name="Compare the chosen").click()
        page.locator("canvas").first.wait_for(timeout=WAIT_MS)
        assert page.locator(".u-legend").first.inner_text().count("s0") == 0

        page.get_by_label("single runs").check()

        assert "s0" in page.locator(".u-legend").first.inner_text()
        assert "the same settings (3 runs)" in page.locator("main").inner_text()
