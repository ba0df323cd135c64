"""A run whose engines sleep in train steps has the numbers of one whose engines stay awake."""

from __future__ import annotations

import pytest
import trinity
from trinity.common.config import load_config
from trinity.extend import get_manager, set_manager
from trinity.monitor.jsonl import read_metrics
from trinity.runtime.record.result import RunStatus
from trinity_testing.history import read_history

# Its weights are no numbers once it has slept, as those of a GPU whose memory others had.
ENGINE = """
import logging
import math
import os
from pathlib import Path

import torch

from trinity.engines.transformers_engine import TransformersEngine

logger = logging.getLogger(__name__)


class Sleepy(TransformersEngine):
    def __init__(self, *, model_path, max_model_len, dtype="float32", seed=0, in_lockstep=True):
        super().__init__(
            model_path=model_path,
            max_model_len=max_model_len,
            dtype=dtype,
            seed=seed,
            in_lockstep=in_lockstep,
        )
        self.told = []

    def sleep(self, level):
        self.told.append(f"sleep {level}")
        with torch.no_grad():
            for weight in self._module.parameters():
                weight.fill_(math.nan)

        deadly = Path(__file__).with_name("dies at its second sleep")
        if len(self.told) > 3 and deadly.exists():
            deadly.unlink()
            os._exit(1)

    def wake_up(self, tags=None):
        self.told.append(f"wake_up {tags}")
        logger.warning("was told %s", ", ".join(self.told))

    def submit(self, request):
        assert not self.told or "kv_cache" in self.told[-1], self.told
        return super().submit(request)
"""
PLUGIN = """
from trinity.extend import ComponentSpec, hookimpl


@hookimpl
def trinity_rollout_engines():
    abilities = {"sleep", "stop_strings"}
    return {"sleepy": ComponentSpec(f"{__name__}.engine:Sleepy", provides=abilities)}
"""


@pytest.fixture
def runs(config_dict, write_yaml, plugin_dir, tmp_path):
    """Return a function that runs three steps, with engines that sleep or do not."""
    config_dict["buffer"] |= {"batch_size": 2, "total_steps": 3}
    (tmp_path / "plugins" / "sleepy").mkdir(parents=True)
    plugin_dir(ENGINE, "sleepy/engine.py")  # apart: it imports torch, which takes its time
    folder = plugin_dir(PLUGIN, "sleepy/__init__.py")
    before = set_manager(get_manager().narrowed(plugin_dirs=[folder]))

    def run(name, *, sleeps, **options):
        rollout = {"engine_type": "sleepy", "enable_sleep_mode": sleeps}
        config_dict["explorer"]["rollout_model"] = rollout | options.pop("rollout", {})
        return trinity.run(load_config(write_yaml(config_dict | {"name": name})), **options)

    yield run
    set_manager(before)


def numbers_of(result):
    rows = [
        {name: value for name, value in row.items() if "time/" not in name and "perf/" not in name}
        for row in read_metrics(result.directory / "monitor")
    ]
    return sorted(rows, key=lambda row: (str(row["role"]), row["step"]))


TOLD = "was told " + ", ".join(["sleep 2, wake_up ['weights'], wake_up ['kv_cache']"] * 3)


def rounded(row):
    return {name: value for name, value in row.items() if isinstance(value, float | int)}


def check_same(asleep, awake) -> None:
    assert [one.status for one in (asleep, awake)] == [RunStatus.FINISHED] * 2
    assert read_history(asleep.directory) == read_history(awake.directory)
    assert numbers_of(asleep) == numbers_of(awake)


def test_in_one_process_engines_sleep_in_each_train_step_and_no_number_changes(
    runs, caplog
) -> None:
    check_same(runs("asleep", sleeps=True, local=True), runs("awake", sleeps=False, local=True))

    told = [line for line in caplog.messages if line.startswith("was told")]
    assert told[-1] == TOLD


@pytest.mark.ray
@pytest.mark.acceptance
def test_over_ray_all_engines_sleep_in_each_train_step_and_no_number_changes(
    runs, ray_cluster
) -> None:
    asleep = runs("asleep", sleeps=True, rollout={"engine_num": 2})
    awake = runs("awake", sleeps=False, local=True)

    assert asleep.status is RunStatus.FINISHED
    assert read_history(asleep.directory) == read_history(awake.directory)
    for here, there in zip(numbers_of(asleep), numbers_of(awake), strict=True):
        assert rounded(here) == pytest.approx(rounded(there), rel=1e-5, abs=1e-6)

    for engine in ("engine-0", "engine-1"):
        assert TOLD in (asleep.directory / "logs" / f"{engine}.log").read_text()


@pytest.mark.ray
@pytest.mark.acceptance
def test_an_engine_that_dies_in_its_sleep_costs_the_steps_since_the_last_checkpoint(
    runs, ray_cluster, tmp_path, capsys
) -> None:
    deadly = tmp_path / "plugins" / "sleepy" / "dies at its second sleep"
    deadly.touch()

    lost = runs("lost", sleeps=True)
    awake = runs("awake", sleeps=False, local=True)

    assert not deadly.exists()
    assert lost.status is RunStatus.FINISHED
    assert read_history(lost.directory) == read_history(awake.directory)
    said = "the process of engine-0 was lost (it ended or was killed): all workers are started anew"
    assert said in capsys.readouterr().out
