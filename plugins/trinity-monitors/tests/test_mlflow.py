"""MLflow over a database file: what its client reads back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from trinity_monitors.mlflow_monitor import MlflowMonitor

mlflow = pytest.importorskip("mlflow", reason="pip install 'trinity-monitors[mlflow]'")
pytest.importorskip("sqlalchemy", reason="pip install 'trinity-monitors[mlflow]'")


def test_a_run_that_goes_on_keeps_its_id_and_writes_no_step_twice(tmp_path) -> None:
    directory = tmp_path / "p" / "n" / "monitor"
    directory.mkdir(parents=True)
    (directory.parent / "config.yaml").write_text("project: p\nname: n\nseed: 1\n")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    first = MlflowMonitor(directory=directory, role="explorer", uri=uri)
    for step in (1, 2, 3):
        first.log({"rollout/reward/mean": step / 4}, step=step)
    first.log({"eval/t/reward/mean@4": math.nan, "odd (name)": 1.0}, step=3)
    first.close()
    first.close()

    again = MlflowMonitor(directory=directory, role="explorer", uri=uri)
    for step in (2, 3, 4):  # back to the checkpoint after step 1
        again.log({"rollout/reward/mean": step / 4}, step=step)
    again.close()

    client = mlflow.MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("p").experiment_id])
    history = client.get_metric_history(run.info.run_id, "rollout/reward/mean")
    assert [(m.step, m.value) for m in history] == [(1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0)]
    assert math.isnan(
        client.get_metric_history(run.info.run_id, "eval/t/reward/mean_at_4")[0].value
    )
    assert client.get_metric_history(run.info.run_id, "odd _name_")
    assert (run.info.run_name, run.info.status) == ("n_explorer", "FINISHED")
    assert run.data.tags["role"] == "explorer"
    assert run.data.params == {"project": "p", "name": "n", "seed": "1"}


def test_samples_are_a_table_of_their_step(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the store keeps files
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monitor = MlflowMonitor(directory=tmp_path / "monitor", role="trainer", uri=uri)
    row = {"eid": "1/0/0/0", "reward": 1.0, "advantage": None, "prompt": "2 + 2 =", "response": "4"}
    for _ in range(2):  # the second is there
        monitor.log_samples([row, row | {"reward": 0.0}], step=7)
    monitor.close()

    client = mlflow.MlflowClient(tracking_uri=uri)
    run_id = json.loads((tmp_path / "monitor/mlflow-trainer.jsonl").read_text().split("\n")[0])
    path = client.download_artifacts(run_id["run_id"], "samples/step-000007.json", str(tmp_path))
    table = json.loads(Path(path).read_text())
    assert table["columns"] == list(row)
    assert [cells[1] for cells in table["data"]] == [1.0, 0.0]
