"""How many runs go on at a time, and what each may use."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.common.config.machine import Machine
from trinity_lab import slots
from trinity_lab.slots import gpus_of, slots_for


def config(**explorer) -> Config:
    return Config.model_validate({"explorer": {"rollout_model": explorer}})


@pytest.fixture
def machine(monkeypatch):
    def be(num_gpus: int, *, num_cores: int = 8) -> None:
        monkeypatch.setattr(slots, "probe", lambda: Machine(num_gpus=num_gpus))
        monkeypatch.setattr(slots.os, "sched_getaffinity", lambda _: set(range(num_cores)))
        for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "RAY_ADDRESS"):
            monkeypatch.delenv(name, raising=False)

    return be


def test_without_gpus_each_local_run_has_a_core(machine) -> None:
    machine(0)

    assert slots_for(config(), is_local=True) == [{"OMP_NUM_THREADS": "1"}] * 8
    assert slots_for(config(), is_local=True, num=2) == [{"OMP_NUM_THREADS": "4"}] * 2
    assert len(slots_for(config(), is_local=False)) == 2  # driver, trainer, engine, runner


def test_each_local_run_has_a_gpu_of_its_own(machine, monkeypatch) -> None:
    machine(3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")

    seen = [slot["CUDA_VISIBLE_DEVICES"] for slot in slots_for(config(), is_local=True)]

    assert seen == ["4", "5", "7"]


def test_a_run_over_ray_has_the_gpus_of_its_engines_and_its_trainer(machine) -> None:
    machine(8)
    wide = config(engine_num=2, tensor_parallel_size=1)

    assert gpus_of(wide) == 3
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots_for(wide, is_local=False)] == [
        "0,1,2",
        "3,4,5",
    ]


@pytest.mark.ray
@pytest.mark.acceptance
def test_a_cluster_takes_as_many_runs_as_its_cores_allow(ray_cluster, monkeypatch) -> None:
    import ray

    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)
    cores = int(ray.cluster_resources()["CPU"])

    assert len(slots_for(config(), is_local=False)) == max(1, cores // 4)
