"""Two engines on processors, each with a process and a runner of its own."""

from __future__ import annotations

import pytest
import trinity
from trinity.common.config import load_config
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.result import RunStatus
from trinity_testing.history import read_history

pytestmark = [pytest.mark.ray, pytest.mark.acceptance]
ROLES = ["explorer", "trainer", "synchronizer"]


def numbers_of(result):
    rows = [
        {name: value for name, value in row.items() if "time/" not in name and "perf/" not in name}
        | {"role": ROLES.index(row["role"])}
        for row in read_metrics(result.directory / "monitor")
    ]
    return sorted(rows, key=lambda row: (row["role"], row["step"]))


@pytest.mark.parametrize("offset", [0, 1])
def test_two_engines_over_ray_give_the_numbers_of_one(
    config_dict, write_yaml, ray_cluster, capsys, offset
) -> None:
    config_dict["buffer"] |= {"batch_size": 2, "total_steps": 4}
    config_dict["synchronizer"] = {"sync_offset": offset}

    def run(name, *, engines, local):
        config_dict["explorer"]["rollout_model"] = {"engine_num": engines}
        config = load_config(write_yaml(config_dict | {"name": name}))
        return trinity.run(config, local=local)

    one, two = run("one", engines=1, local=True), run("two", engines=2, local=False)

    assert [run.status for run in (one, two)] == [RunStatus.FINISHED] * 2
    assert read_history(one.directory) == read_history(two.directory)
    for here, there in zip(numbers_of(one), numbers_of(two), strict=True):
        assert there == pytest.approx(here, rel=1e-5, abs=1e-6), (here["role"], here["step"])
    assert "engine-1" in capsys.readouterr().out


def test_two_engines_in_one_process_give_the_numbers_of_one(config_dict, write_yaml) -> None:
    runs = []
    for engines in (1, 2):
        config_dict["explorer"]["rollout_model"] = {"engine_num": engines}
        config = load_config(write_yaml(config_dict | {"name": f"engines-{engines}"}))
        runs.append(trinity.run(config, local=True))

    assert read_history(runs[0].directory) == read_history(runs[1].directory)
    for one, two in zip(*map(numbers_of, runs), strict=True):
        assert two == pytest.approx(one, rel=1e-5, abs=1e-6), (one["role"], one["step"])


def test_over_ray_each_engine_tells_what_it_sampled(config_dict, write_yaml, ray_cluster) -> None:
    config_dict["buffer"] |= {"batch_size": 2, "total_steps": 3}
    config_dict["synchronizer"] = {"sync_style": "fully_async"}
    config_dict["explorer"]["rollout_model"] = {"engine_num": 2}

    result = trinity.run(load_config(write_yaml(config_dict)), local=False)

    assert result.status is RunStatus.FINISHED
    rows = read_metrics(result.directory / "monitor", role="explorer")
    for name in ("engine-0/tokens_per_s", "engine-1/tokens_per_s"):
        assert max(row.get(name, 0.0) for row in rows) > 0.0
    assert [row["versions/per_reply"] for row in rows] == [1.0] * 3
