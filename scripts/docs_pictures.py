"""Take the pictures of the docs from a real run: the viewer's and the studio's pages.

    python scripts/docs_pictures.py [--run FOLDER] [--alfworld FOLDER] [--agents FOLDER]

Needs chromium and playwright (``pip install playwright``), trinity-studio and trinity-testing.
Without ``--run``, the quickstart is trained first, in a temporary folder; that takes two minutes.
The other two are folders in which the small examples of those names were run, as
``scripts/docs_curves.py --keep`` leaves them; without them their pictures stay as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/_static"
QUICKSTART = ROOT / "examples/quickstart"
MOST_BYTES = 150_000
WAIT_MS = 60_000


def main() -> int:
    """Return 1 where a picture is too large."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    asked.add_argument("--run", type=Path, help="a folder in which the quickstart was run")
    asked.add_argument("--alfworld", type=Path, help="one in which grpo_alfworld was run")
    asked.add_argument("--agents", type=Path, help="one in which agents was run")
    said = asked.parse_args()
    given = said.run
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trinity_pictures_") as name:
        folder = given.resolve() if given else train(Path(name))
        with browser() as opened:
            take_viewer(opened, folder)
            take_studio(opened, folder)
            if said.alfworld:
                take_play(opened, said.alfworld.resolve())
            if said.agents:
                take_agent(opened, said.agents.resolve())
    sizes = {path.name: path.stat().st_size for path in sorted(PICTURES.glob("*.png"))}
    sys.stdout.writelines(f"{name}: {size / 1000:.0f} kB\n" for name, size in sizes.items())
    return int(max(sizes.values()) > MOST_BYTES)


def train(folder: Path) -> Path:
    """Train the quickstart in the folder, and return it."""
    prepare = [sys.executable, str(QUICKSTART / "prepare.py")]
    config = str(QUICKSTART / "quickstart.yaml")
    run = [sys.executable, "-m", "trinity", "run", "--local", "--config", config]
    for command in (prepare, run):
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder


def take_viewer(browser: Any, folder: Path) -> None:
    """Take a run's page and the samples of a step that has better and worse ones."""
    runs = sorted((folder / "checkpoints").glob("*/*/grpo/run.json"))
    directory = runs[0].parent if runs else folder / "checkpoints/quickstart/addition"
    step = middle_step(directory)
    with serving("view", str(directory), cwd=folder) as address:
        page = browser.new_page(viewport={"width": 1180, "height": 800})
        take(page, f"{address}/run/0", "viewer-run")
        page.set_viewport_size({"width": 1180, "height": 560})  # more is more of the same
        take(page, f"{address}/run/0/step/{step}", "viewer-step")
        page.close()


def take_play(browser: Any, folder: Path) -> None:
    """Take the tries of a task of ALFWorld, side by side."""
    directory = next(folder.glob("checkpoints/*/*/grpo/run.json")).parent
    with serving("view", str(directory), cwd=folder) as root:
        page = browser.new_page(viewport={"width": 1180, "height": 720})
        address = f"{root}/run/0/task/{middle_step(directory)}/0"
        page.goto(address)
        page.wait_for_timeout(3000)  # what workflows returned is looked through meanwhile
        take(page, address, "viewer-alfworld")
        page.close()


def take_agent(browser: Any, folder: Path) -> None:
    """Take the exchanges of one run of an agent with two tools."""
    directory = next(folder.glob("checkpoints/*/*/agent/run.json")).parent
    with serving("view", str(directory), cwd=folder) as address:
        page = browser.new_page(viewport={"width": 1180, "height": 560})
        take(page, f"{address}/run/0/exchanges/{middle_step(directory)}/0/0", "viewer-agent")
        page.close()


def middle_step(directory: Path) -> int:
    """Return a step of the first half, where a group holds right and wrong answers."""
    lines = (directory / "monitor/metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line).get("step", 0) for line in lines]
    return max(1, max(steps) // 4)


def take_studio(browser: Any, folder: Path) -> None:
    """Take both modes, with the quickstart's configuration opened."""
    shutil.copy(QUICKSTART / "quickstart.yaml", folder / "run.yaml")
    with serving("studio", "--config", "run.yaml", cwd=folder) as address:
        page = browser.new_page(viewport={"width": 1180, "height": 800})
        page.goto(address)
        page.get_by_text("Configuration File").wait_for(timeout=WAIT_MS)
        for mode in ("Beginner Mode", "Expert Mode"):
            page.get_by_text(mode, exact=True).first.click()
            page.wait_for_timeout(2500)  # Streamlit draws field after field
            page.get_by_label("YAML file").first.evaluate("field => field.value = 'run.yaml'")
            shoot(page, f"studio-{mode.split()[0].lower()}")
        page.close()


def take(page: Any, address: str, name: str) -> None:
    """Take a page of the viewer."""
    page.goto(address, wait_until="networkidle")
    page.wait_for_timeout(500)  # charts are drawn by the page itself
    shoot(page, name)


def shoot(page: Any, name: str) -> None:
    """Write what the window shows."""
    page.screenshot(path=PICTURES / f"{name}.png")


@contextmanager
def serving(*words: str, cwd: Path) -> Iterator[str]:
    """Yield the address that the command prints; end it afterwards."""
    command = [sys.executable, "-m", "trinity", *words, "--port", "0"]
    with subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            lines = iter(server.stdout.readline, "")
            yield next(word for line in lines for word in line.split() if "://" in word).rstrip("/")
        finally:
            server.terminate()


@contextmanager
def browser() -> Iterator[Any]:
    """Yield the system's Chromium without a window."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


if __name__ == "__main__":
    sys.exit(main())
