"""What is damaged on the disk is named, and never used."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.common.experience import Experience
from trinity.errors import CheckpointError, RunFailedError
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.checkpoint import CheckpointStore, check_model
from trinity.runtime.record.progress import Progress
from trinity.runtime.record.records import (
    StateRecord,
    StatusRecord,
    explained_when_full,
    read_record,
    write_record,
)
from trinity.runtime.record.rewind import GrowingFiles
from trinity.runtime.record.rundir import RunDir
from trinity_testing.history import read_history

STATUS = {
    "status": "running", "stage": "", "mode": "both", "asked": [1, None, None],
    "explore_steps": 3, "train_steps": 2, "seconds": 1.5,
    "first_evaluation": {}, "evaluation": {"eval/rows/reward/mean@1": 0.25}, "error": "",
}  # fmt: skip


def a_state(step):
    values = {"explorer": {}, "strategy": {}, "storage": {}, "files": {}, "plugins": []}
    return {"mode": "both", "progress": asdict(Progress(train_steps=step)), "digest": "", **values}


def write_model(folder) -> None:
    (folder / "huggingface").mkdir()
    (folder / "huggingface" / "model.safetensors").write_bytes(bytes(range(200)))


@pytest.fixture
def store(tmp_path):
    """Return three checkpoints."""
    store = CheckpointStore(tmp_path)
    waiting = [Experience(tokens=[1, 2, 3], prompt_length=1, reward=0.5)]
    for step in (1, 2, 3):
        store.save(step, state=a_state(step), experiences=waiting, write_actor=write_model)
    return store


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def shorten(path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def remove(path) -> None:
    path.unlink()


def replace_by_folder(path) -> None:
    path.unlink()
    path.mkdir()


MODEL = "actor/huggingface/model.safetensors"


@pytest.mark.parametrize("damage", [flip, shorten, replace_by_folder, remove])
@pytest.mark.parametrize("name", [MODEL, "experiences.jsonl", "state.json", "manifest.json"])
def test_the_newest_whole_checkpoint_is_taken_and_the_damaged_file_named(
    name, damage, store, tmp_path
) -> None:
    said = []
    damage(tmp_path / "global_step_3" / name)

    newest = store.newest_whole(say=said.append)

    (line,) = said
    if damage is remove and name == "manifest.json":
        assert newest.step == 3
        assert "taken as they are" in line
        return
    assert newest.step == 2
    assert line.startswith(str(tmp_path / "global_step_3" / name))
    assert "goes back to global_step_2" in line
    assert [checkpoint.step for checkpoint in store.all()] == [1, 2]
    assert (tmp_path / "global_step_3.damaged").is_dir()
    assert (tmp_path / "latest_checkpointed_iteration.txt").read_text() == "2\n"


def test_a_file_more_in_a_checkpoint_is_no_damage(store, tmp_path) -> None:
    (tmp_path / "global_step_3" / "actor" / "notes.txt").write_text("a user's")

    assert store.newest_whole(say=pytest.fail).step == 3


def test_where_no_checkpoint_is_whole_the_run_stops_and_says_how_to_choose(
    store, tmp_path, golden
) -> None:
    for step in (1, 2, 3):
        flip(tmp_path / f"global_step_{step}" / MODEL)

    with pytest.raises(CheckpointError) as caught:
        store.newest_whole(say=pytest.fail)

    golden(str(caught.value), "no_checkpoint_is_whole", TMP=tmp_path)
    assert [checkpoint.step for checkpoint in store.all()] == [1, 2, 3]


def test_the_state_of_another_step_is_not_taken(store, tmp_path) -> None:
    state = (tmp_path / "global_step_2" / "state.json").read_bytes()
    (tmp_path / "global_step_3" / "state.json").write_bytes(state)

    assert store.newest_whole(say=lambda _: None).step == 2


def test_a_checkpoint_without_a_manifest_is_taken_with_one_line(store, tmp_path) -> None:
    (tmp_path / "global_step_3" / "manifest.json").unlink()
    said = []

    assert store.newest_whole(say=said.append).step == 3
    assert said == [
        f"{tmp_path / 'global_step_3'} has no manifest.json, which would tell whether its files "
        f"are whole: they are taken as they are"
    ]


def test_a_model_that_another_run_loads_is_checked(store, tmp_path, golden) -> None:
    folder = tmp_path / "global_step_3" / "actor" / "huggingface"
    check_model(folder)
    flip(folder / "model.safetensors")

    with pytest.raises(CheckpointError) as caught:
        check_model(folder)

    golden(str(caught.value), "model_of_a_checkpoint_damaged", TMP=tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b"null", b"3", b'"text"', b"\xff\xfe\x00", b'{"status":', b"NaN",
        json.dumps(STATUS | {"train_steps": "two"}).encode(),
        json.dumps(STATUS | {"train_steps": -1}).encode(),
        json.dumps(STATUS | {"train_steps": float("nan")}).encode(),
        json.dumps(STATUS | {"seconds": float("nan")}).encode(),
        json.dumps(STATUS | {"evaluation": []}).encode(),
        json.dumps(STATUS | {"asked": None}).encode(),
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_status_that_is_none_is_told_with_its_file_and_the_remedy(content, tmp_path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)

    with pytest.raises(CheckpointError) as caught:
        RunDir(tmp_path).read_status(mode="both")

    assert str(caught.value).startswith(f"{path} is damaged: ")
    assert str(caught.value).endswith("Remove it: the run goes on from its last checkpoint.")


def test_a_changed_digit_is_seen(tmp_path) -> None:
    path = tmp_path / "run.json"
    write_record(path, STATUS)
    assert read_record(path, StatusRecord, remedy="") == STATUS
    path.write_text(path.read_text().replace("0.25", "0.35"))

    with pytest.raises(CheckpointError, match="its checksum is not that of its values"):
        read_record(path, StatusRecord, remedy="")


def test_a_record_of_a_run_before_there_were_checksums_is_read(tmp_path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(a_state(3) | {"files": {"history.jsonl": 7}}))

    state = read_record(tmp_path / "state.json", StateRecord, remedy="")

    assert state["files"] == {"history.jsonl": 7}


@pytest.mark.parametrize("name", ["history.jsonl", "monitor/metrics.jsonl"])
def test_of_lines_only_the_last_may_be_torn(name, tmp_path) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    rows = [{"step": n, "eids": []} if "history" in name else {"step": n, "role": "trainer"}
            for n in (1, 2)]  # fmt: skip
    path.write_text(f"{json.dumps(rows[0])}\n{json.dumps(rows[1])}\n" + '{"st')
    read = {"history.jsonl": read_history}.get(name, lambda _: read_metrics(path.parent))
    assert len(read(tmp_path)) == 2
    path.write_text('{"st\n' + json.dumps(rows[1]) + "\n")

    with pytest.raises(CheckpointError, match="line 1, is damaged"):
        read(tmp_path)


@pytest.fixture
def growing(tmp_path):
    """Return the growing files of a run that explored and trained, and what they were."""
    config = Config(mode="both")
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(
        storage_type="file", path=str(tmp_path / "stored.jsonl")
    )
    (tmp_path / "run" / "monitor").mkdir(parents=True)
    (tmp_path / "run" / "monitor" / "metrics.jsonl").write_text('{"step": 1, "role": "trainer"}\n')
    (tmp_path / "run" / "history.jsonl").write_text('{"step": 1, "eids": ["1/0/0/0"]}\n')
    (tmp_path / "stored.jsonl").write_text('{"reward": 1}\n')
    files = GrowingFiles(config, rundir=RunDir(tmp_path / "run"))
    return files, files.marks(), GrowingFiles(config, rundir=RunDir(tmp_path / "run"))


@pytest.mark.parametrize("name", ["run/monitor/metrics.jsonl", "run/history.jsonl", "stored.jsonl"])
@pytest.mark.parametrize("damage", [flip, shorten, replace_by_folder])
def test_what_was_written_up_to_the_checkpoint_must_be_there(
    damage, name, growing, tmp_path
) -> None:
    _, marks, anew = growing
    anew.check(marks, say=pytest.fail)
    damage(tmp_path / name)

    with pytest.raises(CheckpointError, match=r"is damaged: .* Put it back from a copy"):
        anew.check(marks, say=pytest.fail)


def test_what_is_appended_is_part_of_the_next_digest(growing, tmp_path) -> None:
    files, _, anew = growing
    with (tmp_path / "stored.jsonl").open("a") as file:
        file.write('{"reward": 2}\n')
    marks = files.marks()

    anew.check(marks, say=pytest.fail)

    assert marks[str(tmp_path / "stored.jsonl")]["size"] == 28
    assert marks == anew.marks()


def test_metrics_that_were_removed_are_told_and_stored_experiences_are_missed(
    growing, tmp_path
) -> None:
    _, marks, anew = growing
    said = []
    (tmp_path / "run" / "monitor" / "metrics.jsonl").unlink()
    anew.check(marks, say=said.append)
    first = said.copy()
    (tmp_path / "stored.jsonl").unlink()

    with pytest.raises(CheckpointError, match=r"stored\.jsonl is damaged: it is missing"):
        anew.check(marks, say=said.append)
    metrics = tmp_path / "run" / "monitor" / "metrics.jsonl"
    assert first == [f"{metrics} is gone: it goes on without the lines that it had"]


def test_a_file_that_the_run_never_wrote_is_not_cut(growing, tmp_path, golden) -> None:
    _, marks, anew = growing
    known = {name: mark for name, mark in marks.items() if "stored" not in name}

    with pytest.raises(CheckpointError) as caught:
        anew.check(known, say=pytest.fail)

    golden(str(caught.value), "file_of_another_run", TMP=tmp_path)


def test_a_folder_in_the_place_of_a_file_of_the_run_is_told(tmp_path, golden) -> None:
    (tmp_path / "plugins.json").mkdir()

    with pytest.raises(RunFailedError) as caught, explained_when_full(tmp_path):
        (tmp_path / "plugins.json").read_text()

    golden(str(caught.value), "file_of_the_run_is_a_folder", TMP=tmp_path)


def test_a_file_that_the_disk_does_not_take_is_named_and_stays_as_it_was(
    tmp_path, full_beyond
) -> None:
    path = tmp_path / "run.json"
    write_record(path, STATUS)
    before = path.read_bytes()
    failure = f"^{path} could not be written: File too large. Make room or set "
    refused = pytest.raises(RunFailedError, match=failure)
    with full_beyond(100), refused, explained_when_full(tmp_path):
        write_record(path, STATUS | {"train_steps": 3})

    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]
