"""Trackio over its database: what the package itself reads back."""

from __future__ import annotations

import math

import pytest
from trinity_monitors.trackio_monitor import TrackioMonitor

pytest.importorskip("trackio", reason="pip install 'trinity-monitors[trackio]'")
storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """Return the folder of a monitor whose project no other test has."""
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    run = tmp_path / "monitor"
    run.mkdir()
    (tmp_path / "config.yaml").write_text(f"project: {tmp_path.name}\nname: n\nseed: 1\n")
    return run


def rows(project, run):
    kept = storage.get_logs(project, run)
    return [{name: row[name] for name in row if name != "timestamp"} for row in kept]


def test_a_run_that_goes_on_keeps_its_name_and_writes_no_step_twice(directory, capsys) -> None:
    first = TrackioMonitor(directory=directory, role="trainer")
    for step in (1, 2, 3):
        first.log({"actor/loss": step / 4}, step=step)
    first.close()
    first.close()

    again = TrackioMonitor(directory=directory, role="trainer")
    for step in (2, 3, 4):  # back to the checkpoint after step 1
        again.log({"actor/loss": step / 4}, step=step)
    again.close()

    project = directory.parent.name
    (run,) = storage.get_runs(project)
    assert "_trainer-" in run
    kept = [(row["step"], row["actor/loss"]) for row in rows(project, run)]
    assert kept == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert capsys.readouterr().out == ""


def test_roles_have_runs_of_their_own_beside_each_other(directory) -> None:
    monitors = [TrackioMonitor(directory=directory, role=role) for role in ("explorer", "trainer")]
    for monitor in monitors:
        monitor.log({"time/s": math.nan}, step=1)
        monitor.log_samples([{"eid": "1/0/0/0", "reward": 1.0}], step=1)
        monitor.log_samples([{"eid": "1/0/0/0", "reward": 1.0}], step=1)  # it is there
    for monitor in monitors:
        monitor.close()

    project = directory.parent.name
    assert len(storage.get_runs(project)) == 2
    for run in storage.get_runs(project):
        number, table = rows(project, run)
        assert math.isnan(number["time/s"])
        assert table["samples"]["_value"] == [{"eid": "1/0/0/0", "reward": 1.0}]
