"""GPUs are divided so that every worker of a stage can be placed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trinity.common.config import Config, InferenceModelConfig, Machine
from trinity.errors import ConfigError
from trinity.extend import get_manager
from trinity.runtime.ray import build
from trinity.runtime.ray.cluster import num_workers
from trinity.runtime.ray.gpu_allocation import Host, shares_of, unseen_gpus


def test_a_machine_without_gpus_is_asked_for_none() -> None:
    shares = shares_of(0, trains=True, num_engines=3)

    assert (shares.trainer, shares.engine) == (0.0, 0.0)


@pytest.mark.parametrize("origin", ["default", "machine"])
def test_a_run_of_a_machine_without_gpus_is_refused_where_its_cluster_has_some(origin) -> None:
    config, hosts = Config(), [Host(total=8, free=8), Host(total=0, free=0)]
    config.origins["cluster.gpu_per_node"] = origin

    with pytest.raises(ConfigError) as refused:
        unseen_gpus(config, hosts=hosts, machine=Machine())

    said = str(refused.value)
    assert said.startswith("the cluster has 8 GPUs, and PyTorch finds none on this machine")
    assert "its workers reserve GPUs of the cluster all the same" in said
    assert unseen_gpus(config, hosts=hosts, machine=Machine(num_gpus=1)) == ""
    assert unseen_gpus(config, hosts=hosts[1:], machine=Machine()) == ""


def test_who_asks_for_no_gpus_is_not_refused_for_those_that_the_cluster_has() -> None:
    config = Config()
    config.origins["cluster.gpu_per_node"] = "command line"

    assert unseen_gpus(config, hosts=[Host(total=8, free=8)], machine=Machine()) == ""


@pytest.mark.parametrize("service", ["external_model", "tinker"])
def test_a_run_whose_model_is_served_elsewhere_is_not_refused_for_gpus(service) -> None:
    config = Config()
    getattr(config.model, service).enable = True

    assert unseen_gpus(config, hosts=[Host(total=8, free=8)], machine=Machine()) == ""


@pytest.mark.parametrize("service", ["external_model", "tinker"])
def test_a_run_whose_judge_runs_here_is_refused_though_its_model_is_served(service) -> None:
    judge = InferenceModelConfig(model_path="a/judge")
    config = Config()
    getattr(config.model, service).enable = True
    config.explorer.auxiliary_models = [judge]

    with pytest.raises(ConfigError, match="the cluster has 8 GPUs"):
        unseen_gpus(config, hosts=[Host(total=8, free=8)], machine=Machine())
    judge.external_model_config.enable = True
    assert unseen_gpus(config, hosts=[Host(total=8, free=8)], machine=Machine()) == ""


@pytest.mark.parametrize("has_others", [False, True])
def test_a_run_is_warned_of_gpus_of_its_machine_that_pytorch_cannot_use(
    monkeypatch, has_others
) -> None:
    """In a Ray of its own, or in one that was started before, as by a notebook."""
    hosts = [Host(total=2, free=2, cpus=8, free_cpus=8, is_here=True), Host(0, 0, cpus=8)]
    monkeypatch.setattr(build, "hosts_of_cluster", lambda: hosts)
    monkeypatch.setattr(build, "await_ended_groups", lambda name: None)
    monkeypatch.setattr(build, "probe", Machine)
    monkeypatch.setattr(build, "Placement", lambda *_, **__: None)  # no Ray runs here
    said: list[str] = []
    config, display = Config(), SimpleNamespace(say=said.append)
    config.trainer.trainer_type = "torch"
    parts = SimpleNamespace(config=config, manager=get_manager(), display=display)
    workers = SimpleNamespace(worker_spec=SimpleNamespace(namespace="run/1"))

    build._RayBuilder(parts, workers, has_others=has_others)

    assert said == [
        "warning: PyTorch cannot use this machine's 2 GPUs: defaults are those of a CPU. Install a "
        "PyTorch for GPUs, or see whether CUDA_VISIBLE_DEVICES hides them"
    ]


def test_a_run_that_counted_on_no_gpus_starts_no_worker_where_there_are_some(monkeypatch) -> None:
    monkeypatch.setattr(build, "hosts_of_cluster", lambda: [Host(total=8, free=8)])
    monkeypatch.setattr(build, "await_ended_groups", lambda name: None)
    monkeypatch.setattr(build, "probe", Machine)
    parts = SimpleNamespace(config=Config(), manager=None)
    workers = SimpleNamespace(worker_spec=SimpleNamespace(namespace="run/1"))

    with pytest.raises(ConfigError, match="the cluster has 8 GPUs, and PyTorch finds none"):
        build._RayBuilder(parts, workers, has_others=True)


@pytest.mark.parametrize(
    ("num_gpus", "num_engines", "trainer", "engine"),
    [(1, 1, 0.5, 0.5), (2, 1, 1.0, 1.0), (4, 3, 1.0, 1.0), (2, 3, 1.0, 0.33), (3, 4, 1.0, 0.5)],
)
def test_rooms_get_whole_gpus_or_share_one(num_gpus, num_engines, trainer, engine) -> None:
    shares = shares_of(num_gpus, trains=True, num_engines=num_engines)

    assert (shares.trainer, shares.engine) == (trainer, engine)


def test_an_engine_of_several_gpus_has_them_to_itself() -> None:
    shares = shares_of(9, trains=True, num_engines=2, gpus_of_engine=4)

    assert (shares.trainer, shares.engine) == (1.0, 4.0)


@pytest.mark.parametrize(
    ("num_gpus", "num_engines", "gpus_of_engine", "trains", "ranks"),
    [
        (8, 2, 2, True, 4),
        (8, 1, 4, True, 4),
        (8, 4, 1, True, 4),
        (8, 0, 1, True, 8),  # mode train
        (2, 1, 1, True, 1),
        (2, 3, 1, True, 1),  # beside engines that share a GPU
        (1, 1, 1, True, 1),
        (8, 4, 2, False, 1),  # nobody trains
        (0, 1, 1, True, 1),
    ],
)
def test_the_trainer_has_a_rank_on_each_gpu_that_the_engines_leave(
    num_gpus, num_engines, gpus_of_engine, trains, ranks
) -> None:
    shares = shares_of(
        num_gpus,
        trains=trains,
        num_engines=num_engines,
        gpus_of_engine=gpus_of_engine,
        num_ranks=0,
    )

    assert shares.num_ranks == ranks


@pytest.mark.parametrize(
    ("num_engines", "gpus_of_engine", "num_ranks", "arithmetic"),
    [
        (2, 4, 0, "2 engines x 4 GPUs + 1 trainer rank = 9 GPUs"),
        (2, 2, 5, "2 engines x 2 GPUs + 5 trainer ranks = 9 GPUs"),
        (4, 1, 6, "4 engines x 1 GPUs + 6 trainer ranks = 10 GPUs"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_arithmetic(
    num_engines, gpus_of_engine, num_ranks, arithmetic
) -> None:
    with pytest.raises(ConfigError) as refused:
        shares_of(
            8,
            trains=True,
            num_engines=num_engines,
            gpus_of_engine=gpus_of_engine,
            num_ranks=num_ranks,
        )

    assert str(refused.value) == (
        f"{arithmetic}, but the cluster has 8. Lower explorer.rollout_model.engine_num or "
        "tensor_parallel_size, or trainer.num_ranks."
    )


@given(st.integers(1, 8), st.booleans(), st.integers(0, 8))
def test_all_rooms_fit_onto_the_gpus(num_gpus, trains, num_engines) -> None:
    shares = shares_of(num_gpus, trains=trains, num_engines=num_engines, num_ranks=0)

    free = [1.0] * num_gpus
    ranks = shares.num_ranks if trains else 0
    for share in [shares.trainer] * ranks + [shares.engine] * num_engines:
        place = next(number for number, left in enumerate(free) if left >= share - 1e-9)
        free[place] -= share


def test_ray_starts_as_many_processes_as_the_stage_has_rooms() -> None:
    config = Config()
    config.explorer.rollout_model.engine_num = 2
    numbers = []
    for mode in ("both", "explore", "train", "bench"):
        config.mode = mode
        numbers.append(num_workers(config))

    assert numbers == [5, 4, 1, 4]
