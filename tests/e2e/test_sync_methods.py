"""Weights that go from process to process are those that the object store brings."""

from __future__ import annotations

import pytest
import trinity
from trinity.common.config import load_config
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.result import RunStatus
from trinity_testing.history import read_history

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]


def numbers_of(result):
    rows = [
        {name: value for name, value in row.items() if "time/" not in name and "perf/" not in name}
        for row in read_metrics(result.directory / "monitor")
    ]
    return sorted(rows, key=lambda row: (str(row["role"]), row["step"]))


def weights_of(result):
    from safetensors.torch import load_file

    return load_file(result.stages[-1].checkpoint / "actor/huggingface/model.safetensors")


@pytest.mark.parametrize(
    ("method", "logged"),
    [("gloo", "rank 2 of 3 of rollout_weight_sync/1, gloo"), ("ipc", "mapped the weights of v2")],
)
def test_a_run_has_the_history_the_numbers_and_the_weights_of_one_by_memory(
    config_dict, write_yaml, ray_cluster, capsys, method, logged
) -> None:
    config_dict["buffer"] |= {"batch_size": 2, "total_steps": 3}
    config_dict["explorer"]["rollout_model"] = {"engine_num": 2, "weight_sync_buffer_size": 1}

    def run(method):
        config_dict["synchronizer"] = {"sync_method": method, "sync_timeout": 60}
        return trinity.run(load_config(write_yaml(config_dict | {"name": method})))

    by_memory, own = run("memory"), run(method)

    assert [one.status for one in (by_memory, own)] == [RunStatus.FINISHED] * 2
    assert read_history(own.directory) == read_history(by_memory.directory)
    assert numbers_of(own) == numbers_of(by_memory)
    weights, others = weights_of(own), weights_of(by_memory)
    assert weights.keys() == others.keys()
    assert all(weights[name].equal(others[name]) for name in weights)
    assert logged in (own.directory / "logs" / "engine-1.log").read_text()
