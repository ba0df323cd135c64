"""What the sources of a run were, by real clones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from trinity.common.config import Config
from trinity.runtime.parts import RunInfo
from trinity_lab.provenance import keep_provenance


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", *who, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """Return a clone with one commit, which is the working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "reward.py").write_text("bonus = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def started(tmp_path):
    """Return a function that starts a run and returns what was kept of it."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "plugins.json").write_text("[]")

    def start() -> list[dict]:
        keep_provenance(RunInfo(directory=directory, config=Config.model_validate({}), stage=""))
        file = directory / "provenance.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return start


def test_a_clean_working_folder_is_its_commit(clone, started) -> None:
    [line] = started()

    [source] = line["sources"]
    assert source["of"] == ["working folder", "configuration"]
    assert source["folder"] == str(clone)
    assert source["commit"] == git(clone, "rev-parse", "HEAD").strip()
    assert (source["is_dirty"], source["diff"], source["num_untracked"]) == (False, None, 0)


def test_what_is_not_committed_can_be_applied_again(clone, started, tmp_path) -> None:
    (clone / "reward.py").write_text("bonus = 2\n")
    (clone / "notes.txt").write_text("not added")
    [line] = started()

    [source] = line["sources"]
    assert (source["is_dirty"], source["untracked"]) == (True, ["notes.txt"])
    git(clone, "checkout", "-q", "reward.py")
    git(clone, "apply", str(tmp_path / "run" / source["diff"]))
    assert (clone / "reward.py").read_text() == "bonus = 2\n"


def test_equal_changes_of_two_starts_are_kept_once(clone, started, tmp_path) -> None:
    (clone / "reward.py").write_text("bonus = 2\n")
    first, second = started()[0], started()[1]

    assert first["sources"] == second["sources"]
    assert len(list((tmp_path / "run" / "provenance").iterdir())) == 1


def test_each_editable_plugin_names_its_clone(clone, started, tmp_path) -> None:
    other = tmp_path / "plugin"
    other.mkdir()
    git(other, "init", "-q")
    (other / "new.py").write_text("")  # no commit yet
    plugins = [
        {"plugin": "a", "distribution": "my-a", "source": "editable", "path": str(other)},
        {"plugin": "b", "distribution": "my-b", "source": "editable", "path": str(clone)},
        {"plugin": "c", "distribution": "my-c", "source": "wheel", "path": str(other)},
    ]
    (tmp_path / "run" / "plugins.json").write_text(json.dumps(plugins))
    [line] = started()

    work, plugin = line["sources"]
    assert (work["of"][-1], work["folder"]) == ("my-b", str(clone))
    assert (plugin["of"], plugin["commit"]) == (["my-a"], None)
    assert (plugin["is_dirty"], plugin["untracked"]) == (True, ["new.py"])


def test_a_diff_shows_no_secret_that_the_run_knows(clone, started, tmp_path) -> None:
    from trinity.common.secrets import remember

    remember({"sk-0123456789abcdef"})
    (clone / "reward.py").write_text('key = "sk-0123456789abcdef"\n')
    [line] = started()

    text = (tmp_path / "run" / line["sources"][0]["diff"]).read_text()
    assert "sk-0123456789abcdef" not in text
    assert "+key = " in text


def test_a_clone_starts_no_program_of_its_own_settings(clone, started, tmp_path) -> None:
    script = tmp_path / "script.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-here\n")
    script.chmod(0o755)
    git(clone, "config", "core.fsmonitor", str(script))
    git(clone, "config", "diff.external", str(script))
    (clone / "reward.py").write_text("bonus = 3\n")

    assert started()[0]["sources"][0]["diff"] is not None
    assert not (tmp_path / "was-here").exists()


def test_outside_of_any_clone_nothing_is_kept(started, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert started() == []
