"""A checkpoint is saved anew while its files are removed, or copied."""

from __future__ import annotations

import json
import shutil
import threading
import time

import pytest
from trinity_tinker import checkpoints as module
from trinity_tinker.checkpoints import Checkpoints
from trinity_tinker.sessions import Sessions
from trinity_tinker.store import Store
from trinity_tinker.weight_copies import copy_weights

MODEL = {"id": "a:train:0", "owner": "me", "base": "Qwen/Tiny", "adapter": "{}"}
PATH = "tinker://a:train:0/weights/one"


@pytest.fixture
def checkpoints(tmp_path):
    store = Store(tmp_path / "tinker.db")
    yield Checkpoints(store=store, folder=tmp_path / "checkpoints")
    store.close()


def save(checkpoints, text, **how):
    def write(folder):
        for name in ("adapter", "optimizer"):
            (folder / name).write_text(text)

    what = {"kind": "weights", "name": "one", "write": write, "note": lambda path: None}
    checkpoints.save(MODEL, **what, **how)


def texts_of(checkpoints, path=PATH):
    folder = checkpoints.folder_of(checkpoints.find(path, owner="me"))
    return [(folder / name).read_text() for name in ("adapter", "optimizer")]


def expired(checkpoints, monkeypatch):
    save(checkpoints, "old", ttl_s=3600)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3601)


def test_one_that_is_saved_anew_once_it_was_found_to_be_over_stays(checkpoints, monkeypatch):
    expired(checkpoints, monkeypatch)
    rows = checkpoints.store.rows

    def rows_and_then(*query):
        found = rows(*query)
        save(checkpoints, "new")
        return found

    monkeypatch.setattr(checkpoints.store, "rows", rows_and_then)

    assert checkpoints.delete_expired() == []
    assert texts_of(checkpoints) == ["new", "new"]


def test_the_files_of_one_that_is_saved_anew_stay_though_the_old_one_is_removed_right_then(
    checkpoints, monkeypatch
):
    expired(checkpoints, monkeypatch)
    removing = threading.Thread(target=checkpoints.delete_expired)
    to_disk = module._to_disk

    def to_disk_and_then(path):
        to_disk(path)
        if path.name == "weights":  # the new files are in their place, and have no row yet
            removing.start()
            removing.join(0.3)

    monkeypatch.setattr(module, "_to_disk", to_disk_and_then)
    save(checkpoints, "new")
    removing.join()

    assert texts_of(checkpoints) == ["new", "new"]


def test_a_copy_of_one_that_is_saved_anew_meanwhile_has_no_old_file_beside_a_new_one(
    checkpoints, monkeypatch
):
    save(checkpoints, "old")
    session = Sessions(checkpoints.store).create(b"{}", owner="me", call="")
    copytree, copied = shutil.copytree, []

    def copied_in_between(source, target, **how):
        copied.append(source)
        if len(copied) == 1:
            copytree(source, target, ignore=lambda *_: ["optimizer"], **how)
            save(checkpoints, "new", may_replace=True)
            shutil.copy(source / "optimizer", target)
            return
        copytree(source, target, **how)

    monkeypatch.setattr(shutil, "copytree", copied_in_between)
    body = {"source_path": PATH, "session_id": session, "model_seq_id": 3}
    path = copy_weights(checkpoints, json.dumps(body).encode(), owner="me")

    assert texts_of(checkpoints, path) == ["new", "new"]
