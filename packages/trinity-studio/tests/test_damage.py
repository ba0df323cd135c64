"""Dead and damaged run directories open, with a note of what is damaged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from trinity.errors import ConfigError, DataError
from trinity.runtime.record.logs import logs_to
from trinity.runtime.record.progress import Progress
from trinity.runtime.record.records import write_record
from trinity.runtime.record.sample_files import HEAD_SIZE
from trinity_studio.view.run import find_runs
from trinity_studio.view.server import app_of

from .conftest import TOKEN, Browser

PAGES = ("", "step/1", "step/2", "task/1/0", "rollouts", "failures", "provenance")


def test_a_run_that_died_is_told_from_one_that_runs(built, browse) -> None:
    built.status(status="running")

    said = browse(built.path).text()

    assert "died: it says that it runs, and no process has its directory" in said


def test_what_a_failed_start_left_is_said_not_to_have_started(tmp_path) -> None:
    left = tmp_path / "left"
    (left / "monitor").mkdir(parents=True)
    assert find_runs([left])[0].state == "did not start"
    with pytest.raises(DataError), logs_to(left, level="info", say=print):
        raise DataError("no rows.\nWrite some.")

    assert find_runs([left])[0].state == "did not start: no rows. Write some."


def test_a_folder_with_the_log_of_a_failed_start_alone_is_no_run_and_why_is_said(tmp_path) -> None:
    with pytest.raises(DataError), logs_to(tmp_path, level="info", say=print):
        raise DataError("no rows")

    with pytest.raises(ConfigError, match=r"did not start: no rows$"):
        find_runs([tmp_path])


@pytest.mark.parametrize(
    ("file", "content", "note"),
    [
        ("run.json", b"{", "run.json cannot be read"),
        ("run.json", None, "run.json is missing"),
        ("run.json", b"[]", "run.json is not what a run writes"),
        (
            "monitor/metrics.jsonl",
            b'no\n{"step": 1}\n[]\n',
            "3 lines of metrics.jsonl are damaged",
        ),
        ("samples/from-00000001.bin", b"\0" * 100, "the end of from-00000001.bin, 100 bytes"),
    ],
)
def test_what_is_damaged_is_said_on_the_runs_page(file, content, note, built, browse) -> None:
    path = built.path / file
    path.unlink() if content is None else path.write_bytes(content)

    assert note in browse(built.path).text()


@pytest.mark.parametrize(
    ("written", "note"),
    [
        ({"watched_metric": "eval/<b>/reward", "top_value": 0.0}, "since eval/<b>/reward 0, 0"),
        ({"watched_metric": "eval/reward"}, "since eval/reward, 0"),  # as 0 was kept before
        ({"best": [[0.5, 2]], "best_metric": "eval/reward", "of_a_later_version": 1},
         "best checkpoints by eval/reward: global_step_2 0.5"),
    ],
)  # fmt: skip
def test_what_a_checkpoint_says_of_the_best_is_said_whichever_version_wrote_it(
    written, note, built, browse
) -> None:
    folder = built.path / "global_step_2"
    folder.mkdir(exist_ok=True)
    progress = {**Progress(train_steps=2).state_dict(), **written}
    parts = {name: {} for name in ("explorer", "strategy", "storage", "files")}
    state = {"mode": "both", "progress": progress, "plugins": [], "digest": "", **parts}
    write_record(folder / "state.json", state)

    assert note in browse(built.path).text()


def test_damaged_settings_are_said_where_they_would_stand(built, browse) -> None:
    (built.path / "config.yaml").write_text("a: [")
    (built.path / "plugins.json").write_bytes(b"\xff\xfe")

    said = browse(built.path).text("provenance")

    assert "config.yaml cannot be read" in said
    assert "plugins.json cannot be read" in said


def test_a_damaged_step_is_said_and_the_others_are_shown(built, browse) -> None:
    (path,) = (built.path / "samples").iterdir()
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(bytes(content))
    page = browse(built.path)

    assert "The samples of step 1 cannot be read" in page.text("step/1")
    assert page.html("step/2").count("<article") == 8


def test_a_samples_folder_without_a_tokenizer_shows_token_ids(built, browse) -> None:
    for path in built.path.rglob("tokenizer.json"):
        path.unlink()

    said = browse(built.path).text("step/1")

    assert "No tokenizer was found" in said
    assert "prompt 0 1" in said


@pytest.mark.parametrize("seed", range(12))
def test_every_page_opens_whatever_has_become_of_two_files(seed, built, browse) -> None:
    dice = random.Random(seed)
    files = sorted(path for path in built.path.rglob("*") if path.is_file())
    for path in dice.sample(files, 2):
        content = bytearray(path.read_bytes())
        kind = dice.randrange(4)
        if kind == 0:
            path.unlink()
            path.mkdir()
        elif kind == 1:
            path.write_bytes(dice.randbytes(200))
        elif kind == 2:
            path.write_bytes(bytes(content[: len(content) // 2]))
        else:
            for _ in range(8):
                content[dice.randrange(len(content))] = dice.randrange(256)
            path.write_bytes(bytes(content))
    page = browse(built.path)

    for path in (*PAGES, "/"):
        page.html(path)


def test_every_page_opens_wherever_a_bit_of_a_sample_head_has_flipped(built, browse) -> None:
    (path,) = (built.path / "samples").iterdir()
    whole = path.read_bytes()
    for place in range(0, HEAD_SIZE, 5):
        content = bytearray(whole)
        content[place] ^= 1 << 6
        path.write_bytes(bytes(content))

        assert "samples kept" in browse(built.path).text()


def test_a_folder_that_may_not_be_read_hides_none_beside_it(built, browse, monkeypatch) -> None:
    closed = built.path.parent.parent / "closed"
    closed.mkdir()
    plain = Path.iterdir

    def refused(path: Path):
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(Path, "iterdir", refused)

    assert "rft" in browse(built.path.parent.parent).text("/")
    with pytest.raises(ConfigError, match="holds no run"):
        find_runs([closed])


def test_a_folder_whose_parts_may_not_be_asked_for_hides_none_beside_it(
    built, browse, monkeypatch
) -> None:
    closed = built.path.parent.parent / "closed"
    closed.mkdir()
    plain = Path.exists

    def refused(path: Path) -> bool:
        if path.parent == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(Path, "exists", refused)

    assert "rft" in browse(built.path.parent.parent).text("/")


def test_a_folder_that_cannot_be_looked_at_again_leaves_the_pages_that_are_open(built) -> None:
    looks = iter([find_runs([built.path])])

    def find():
        for runs in looks:
            return runs
        raise PermissionError(13, "Permission denied")

    page = Browser(TestClient(app_of(find, token=TOKEN), base_url="http://127.0.0.1:8502"))

    assert "rft" in page.text("/")
