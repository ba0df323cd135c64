"""000: which GPUs roll out and which train, on a machine whose GPUs are only told of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from trinity.common.config import Config, Machine, check, load_config, resolve
from trinity.extend import get_manager
from trinity.runtime.ray import gpu_allocation
from trinity.runtime.ray.gpu_allocation import Host

EIGHT = Machine(num_gpus=8, num_cores=64, has_bf16=True)
ENGINE = "trinity_testing.engines:ScriptedEngine"  # any that is no CPU's shares no GPU
YAML = "project: p\nname: n\nmode: both\nalgorithm: {algorithm_type: grpo, repeat_times: 4}\n"


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Config]:
    """Return a function that makes a configuration with so many engines of so many GPUs."""
    path = tmp_path / "run.yaml"
    path.write_text(YAML)

    def configure(num_engines: int, size: int, *overrides: str) -> Config:
        model = "explorer.rollout_model"
        asked = (f"{model}.engine_num={num_engines}", f"{model}.tensor_parallel_size={size}")
        engine = f"{model}.engine_type={ENGINE}"
        return resolve(load_config(path, overrides=(engine, *asked, *overrides)), EIGHT)

    return configure


def said_of_gpus(config: Config) -> list[str]:
    found = [f"{p.path}: {p.message} {p.remedy}" for p in check(config, EIGHT)]
    return [line for line in found if "GPUs;" in line]


def test_P122_two_engines_of_two_gpus_leave_four_of_eight_to_the_trainer(
    configured,
) -> None:
    config = configured(2, 2)

    shares, groups = gpu_allocation.gpu_shares(config, get_manager(), hosts=[Host(8, free=8)])

    assert said_of_gpus(config) == []
    assert (shares.engine, shares.trainer, shares.num_ranks) == (2.0, 1.0, 4)
    assert [list(group.bundles) for group in groups] == [[{"GPU": 2}, {"GPU": 2}, {"GPU": 4}]]


def test_P122_two_engines_of_four_gpus_leave_none_and_are_refused(configured) -> None:
    assert said_of_gpus(configured(2, 4)) == [
        "explorer.rollout_model.engine_num: 2 engines x 4 GPUs and a trainer need 9 GPUs; "
        "there are 8. Decrease it, or tensor_parallel_size."
    ]
    assert said_of_gpus(configured(2, 4, "mode=explore")) == []


def test_P122_the_ranks_that_are_asked_for_are_counted(configured) -> None:
    assert said_of_gpus(configured(2, 2, "trainer.num_ranks=4")) == []
    assert said_of_gpus(configured(2, 2, "trainer.num_ranks=5")) == [
        "trainer.num_ranks: 2 engines x 2 GPUs and 5 trainer ranks need 9 GPUs; "
        "there are 8. Use 4 or fewer."
    ]
    assert said_of_gpus(configured(1, 1, "mode=train", "trainer.num_ranks=9")) == [
        "trainer.num_ranks: 9 trainer ranks need 9 GPUs; there are 8. Use 8 or fewer."
    ]
