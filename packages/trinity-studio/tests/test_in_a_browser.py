"""A configuration made by clicking in a real browser, which then trains: ``nox -s studio``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from trinity_studio.studio.runs import StudioRun

playwright = pytest.importorskip("playwright.sync_api", reason="run: nox -s studio")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs chromium; on Debian: apt-get install chromium"
    ),
]
WAIT_MS = 60_000


@pytest.fixture
def files(tmp_path) -> Path:
    """Return a folder with a tiny model and eight rows."""
    from trinity_testing.tiny import make_tiny_model

    make_tiny_model(tmp_path / "model")
    rows = [json.dumps({"question": f"{n} + 1 =", "answer": str(n + 1)}) for n in range(8)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    return tmp_path


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Give the program, started as a user does, and its address."""
    command = [sys.executable, "-m", "trinity", "studio", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        try:
            yield server, server.stdout.readline().strip()
        finally:
            server.terminate()


@pytest.fixture
def studio(tmp_path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Return the program and its address."""
    with serving(tmp_path) as served:
        yield served


@pytest.fixture
def page(studio) -> Iterator[Any]:
    """Return the studio in Chromium; what it asks of other machines fails the test."""
    foreign: list[str] = []

    def note(request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            foreign.append(request.url)

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1280, "height": 1000})
        opened.on("request", note)
        opened.goto(studio[1])
        opened.get_by_text("Configuration File").wait_for(timeout=WAIT_MS)
        yield opened
        browser.close()
    assert foreign == []


def type_into(page: Any, label: str, text: str) -> None:
    field = page.get_by_label(label, exact=True).first
    field.fill(text)
    field.press("Enter")


def choose(page: Any, label: str, word: str) -> None:
    field = page.get_by_label(label, exact=True).first
    field.click()
    field.fill(word)
    field.press("Enter")


def fill_in(page: Any, files: Path, *, num_steps: int) -> None:
    """Make a tiny configuration by clicking."""
    type_into(page, "Folder of all runs", str(files / "runs"))
    type_into(page, "Model", str(files / "model"))
    type_into(page, "Tasks: file or data set", str(files / "rows.jsonl"))
    choose(page, "Workflow", "simple_workflow")
    choose(page, "Reward", "format_reward")
    type_into(page, "Column of the question", "question")
    type_into(page, "Column of the answer", "answer")
    type_into(page, "Total steps", str(num_steps))
    type_into(page, "Tasks of a step", "4")
    type_into(page, "Tokens of prompt and response", "96")
    type_into(page, "Tokens of a response", "8")
    page.get_by_text("finds nothing wrong with it").wait_for(timeout=WAIT_MS)


TASKS = "buffer.explorer_input.taskset"
TYPED = {  # label -> key, and what is typed; GPUs let a field appear above them
    "Project": ("project", "a project"),
    "Name": ("name", "quick"),
    "Folder of all runs": ("checkpoint_root_dir", "/no/such/runs"),
    "Model": ("model.model_path", "/no/such/model"),
    "Tasks: file or data set": (f"{TASKS}.path", "/no/such/rows.jsonl"),
    "Workflow": (f"{TASKS}.default_workflow_type", "simple_workflow"),
    "Reward": (f"{TASKS}.default_reward_fn_type", "format_reward"),
    "Column of the question": (f"{TASKS}.format.prompt_key", "asked"),
    "Column of the answer": (f"{TASKS}.format.response_key", "said"),
    "System prompt": (f"{TASKS}.format.system_prompt", "Be brief."),
    "Total Epochs": ("buffer.total_epochs", 3),
    "Total steps": ("buffer.total_steps", 7),
    "Learning rate": ("algorithm.optimizer.lr", 0.25),
    "Seed": ("seed", 5),
    "Repeat Times": ("algorithm.repeat_times", 4),
    "Tasks of a step": ("buffer.batch_size", 6),
    "Tokens of prompt and response": ("model.max_model_len", 96),
    "Tokens of a response": ("model.max_response_tokens", 8),
    "Temperature": ("model.temperature", 0.5),
    "Machines": ("cluster.node_num", 1),
    "GPUs of each machine": ("cluster.gpu_per_node", 4),
    "Engines": ("explorer.rollout_model.engine_num", 2),
    "Sync Interval": ("synchronizer.sync_interval", 9),
    "Steps between evaluations": ("explorer.eval_interval", 12),
    "Save Interval": ("trainer.save_interval", 15),
}
FOCUSED = """() => {
  const one = document.activeElement, label = document.querySelector(`label[for="${one.id}"]`);
  return one.tagName == "INPUT" ? one.ariaLabel || label?.innerText : null;
}"""


def next_field(page: Any) -> str:
    """Press Tab until a field has the focus, past the signs of help; return its label."""
    for _ in range(10):
        page.keyboard.press("Tab")
        label = page.evaluate(FOCUSED)
        if label:
            return str(label)
    raise AssertionError("Tab comes to no field")


def written(page: Any) -> dict[str, Any]:
    """Return what stands in the file now."""
    return yaml.safe_load(page.get_by_test_id("stCode").first.inner_text()) or {}


def at(values: Any, path: str) -> Any:
    for step in path.split("."):
        values = values.get(step) if isinstance(values, dict) else None
    return values


def lost(page: Any, typed: dict[str, Any]) -> dict[str, Any]:
    """Wait until the file says what was typed; return what it says instead where it does not."""
    limit = time.monotonic() + WAIT_MS / 1000
    while True:
        values = written(page)
        others = {path: at(values, path) for path in typed if at(values, path) != typed[path]}
        if not others or time.monotonic() > limit:
            return others
        page.wait_for_timeout(200)


@pytest.mark.parametrize("delay_ms", [0, 10, 40])
@pytest.mark.parametrize("is_entered", [False, True], ids=["tab", "enter"])
def test_what_is_typed_quickly_from_field_to_field_stands_in_the_file(
    page, is_entered, delay_ms
) -> None:
    label, left = "Project", dict(TYPED)
    page.get_by_label(label, exact=True).first.focus()
    while left:
        if label in left:
            page.keyboard.press("Control+A")
            page.keyboard.type(str(left.pop(label)[1]), delay=delay_ms)
            if is_entered:
                page.keyboard.press("Enter")
        label = next_field(page)

    typed = dict(TYPED.values())
    assert lost(page, typed) == {}
    page.wait_for_timeout(1000)
    assert lost(page, typed) == {}


def test_a_drawer_stays_open_and_the_focus_in_it_as_its_fields_are_filled(page) -> None:
    page.get_by_text("Expert Mode").click()
    page.get_by_text("Trainer", exact=True).click()
    page.locator("summary", has_text="Optimizer").click()
    page.get_by_label("Learning rate", exact=True).first.click()
    page.keyboard.type("0.25")
    assert next_field(page) == "Learning rate warmup steps"
    page.keyboard.type("7", delay=20)
    assert next_field(page) == "Learning rate warmup steps ratio"
    page.keyboard.type("0.5", delay=20)
    page.keyboard.press("Enter")
    optimizer = "algorithm.optimizer"
    typed = {"lr": 0.25, "lr_warmup_steps": 7, "lr_warmup_steps_ratio": 0.5}

    assert lost(page, {f"{optimizer}.{key}": value for key, value in typed.items()}) == {}
    title = page.locator("summary", has_text="Optimizer").locator("p")
    behind = "one => getComputedStyle(one, '::after').content"
    wait_until(lambda: title.evaluate(behind) == '" \u00b7 3 given"')
    assert page.evaluate(FOCUSED) == "Learning rate warmup steps ratio"


def test_a_field_whose_program_comes_late_keeps_what_it_begins_with(studio) -> None:
    held: list[Any] = []

    def hold(request: Any) -> None:
        held.append(request)

    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.route("**/NumberInput*.js", hold)
        page.goto(studio[1])
        page.get_by_text("Configuration File").wait_for(timeout=WAIT_MS)
        type_into(page, "Name", "early")
        assert lost(page, {"name": "early"}) == {}
        for request in held:
            request.continue_()
        page.get_by_label("Repeat Times").first.wait_for(timeout=WAIT_MS)
        type_into(page, "Name", "late")

        assert lost(page, {"name": "late", "algorithm.repeat_times": 8}) == {}
        browser.close()
    assert held


def test_a_click_on_save_right_after_typing_saves_what_was_typed(page, files) -> None:
    type_into(page, "Save as", str(files / "made.yaml"))
    page.get_by_label("Model", exact=True).first.click()
    page.keyboard.type("/no/such/model")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Saved as").wait_for(timeout=WAIT_MS)

    made = yaml.safe_load((files / "made.yaml").read_text())
    assert made["model"]["model_path"] == "/no/such/model"


def wait_until(holds: Callable[[], object], *, seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.2)


def status_of(directory: Path) -> dict[str, Any]:
    file = directory / "run.json"
    return json.loads(file.read_text()) if file.exists() else {}


def test_a_configuration_made_by_clicking_is_saved_and_trains_two_steps(page, files) -> None:
    fill_in(page, files, num_steps=2)
    type_into(page, "Save as", str(files / "made.yaml"))
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Saved as").wait_for(timeout=WAIT_MS)
    made = yaml.safe_load((files / "made.yaml").read_text())
    assert made["buffer"]["total_steps"] == 2

    page.get_by_text("Runs", exact=True).click()
    page.get_by_role("button", name="Start", exact=True).click()

    run = files / "runs" / "Trinity" / "my_run"
    wait_until(lambda: status_of(run).get("status") == "finished")
    assert status_of(run)["train_steps"] == 2
    page.get_by_text("Not running").wait_for(timeout=WAIT_MS)
    with page.expect_popup() as opened:
        page.get_by_role("link", name="Open the viewer").click()
    opened.value.get_by_text("my_run").first.wait_for(timeout=WAIT_MS)


def test_a_run_lives_on_when_the_studio_is_killed_and_stops_with_a_checkpoint(
    page, files, studio
) -> None:
    fill_in(page, files, num_steps=5000)
    page.get_by_text("Runs", exact=True).click()
    page.get_by_role("button", name="Start", exact=True).click()
    run = StudioRun(directory=files / "runs" / "Trinity" / "my_run")
    metrics = run.directory / "monitor" / "metrics.jsonl"
    wait_until(metrics.exists)

    studio[0].kill()
    studio[0].wait()
    goes_on(metrics)
    assert run.stop() == 1

    wait_until(lambda: not run.processes())
    assert status_of(run.directory)["status"] == "interrupted"
    assert list(run.directory.glob("global_step_*/actor/huggingface"))


def processes_of(directory: Path) -> list[str]:
    """Return the processes of the runs in a folder: a run's own, and those of its Ray.

    The browser has the mark too.
    """
    mark = f"STUDIO_TEST={directory}".encode()
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            is_ours, words = mark in file.read_bytes(), (file.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if is_ours and any(one in words for one in (b"/ray/", b"ray::", b"trinity\0run")):
            found.append(words.replace(b"\0", b" ").decode())
    return found


@pytest.fixture
def marked(tmp_path, monkeypatch) -> None:
    """Let what the studio starts be known by its environment."""
    monkeypatch.setenv("STUDIO_TEST", str(tmp_path))


@pytest.mark.usefixtures("marked")
@pytest.mark.ray
def test_a_run_over_ray_outlives_page_and_studio_and_is_stopped_from_another_page(
    files, tmp_path, request
) -> None:
    studio, page = request.getfixturevalue("studio"), request.getfixturevalue("page")
    fill_in(page, files, num_steps=5000)
    page.get_by_text("Runs", exact=True).click()
    page.get_by_text("In one process, without Ray").click()
    page.get_by_role("button", name="Start", exact=True).click()
    run = StudioRun(directory=files / "runs" / "Trinity" / "my_run")
    metrics = run.directory / "monitor" / "metrics.jsonl"
    wait_until(metrics.exists, seconds=300)
    assert any("raylet" in one for one in processes_of(tmp_path))

    another = page.context.browser.new_page()
    page.close()
    goes_on(metrics)
    studio[0].kill()
    studio[0].wait()
    goes_on(metrics)

    with serving(tmp_path, "--config", str(run.config)) as (_, address):
        another.goto(address)
        another.get_by_text("Configuration File").wait_for(timeout=WAIT_MS)
        another.get_by_text("Runs", exact=True).click()
        another.get_by_role("button", name="Stop", exact=True).click()
        wait_until(lambda: not run.processes())
        another.get_by_text("Not running").wait_for(timeout=WAIT_MS)
    assert status_of(run.directory)["status"] == "interrupted"
    assert list(run.directory.glob("global_step_*/actor/huggingface"))
    wait_until(lambda: not processes_of(tmp_path), seconds=300)


def goes_on(metrics: Path) -> None:
    """Wait until a run has written more."""
    lines = len(metrics.read_text().splitlines())
    wait_until(lambda: len(metrics.read_text().splitlines()) > lines + 3)
