"""``--local`` is planned, resolved and checked for what one process uses: one GPU of several."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from trinity.common.config import Machine, check, load_config, prepared_stages, resolve
from trinity.common.config.memory import known_shape
from trinity.common.config.parts import NamedParts
from trinity.common.config.preparation import in_one_process, run_manager, stages_on
from trinity.common.config.resolve_gpus import num_ranks, trainer_memory
from trinity.errors import ConfigError
from trinity.runtime.run import run

EIGHT = Machine(
    num_gpus=8, has_bf16=True, gpu_bytes=80 * 10**9, model=known_shape("Qwen/Qwen2.5-1.5B")
)
ONE = replace(EIGHT, num_gpus=1)
LENGTHS = ("model.max_model_len=5120", "model.max_response_tokens=4096")
ENGINE = "explorer.rollout_model"


@pytest.fixture
def alone(a_run):
    """Return a function that resolves a small file for one process, and gives its machine, too."""

    def make(*settings: str, machine: Machine = EIGHT):
        given = load_config(a_run(), overrides=(*LENGTHS, *settings))
        config, machine = in_one_process(given, machine)
        return resolve(config, machine), machine

    return make


def test_a_local_run_is_resolved_for_one_gpu_of_eight(alone) -> None:
    """1.5B: 12 bytes a parameter at rest, 2 of a reference, and the engine has the rest."""
    config, machine = alone()
    plan = trainer_memory(config, machine, NamedParts(None))

    assert machine.num_gpus == config.explorer.rollout_model.engine_num == plan.num_ranks == 1
    assert config.trainer.trainer_strategy == "ddp"
    assert config.trainer.gradient_checkpointing
    assert config.explorer.rollout_model.gpu_memory_utilization > 0.4
    assert plan.at_rest == 14 * EIGHT.model.parameters
    assert [one for one in check(config, machine) if one.severity == "error"] == []


def test_a_local_run_that_fits_eight_gpus_alone_is_refused(a_run, monkeypatch) -> None:
    """7B needs 26 GB on each of 4 GPUs, and more than 106 GB on one."""
    large = replace(EIGHT, model=known_shape("Qwen/Qwen2.5-7B"))
    monkeypatch.setattr("trinity.common.config.preparation.probe", lambda model_path: large)
    config = load_config(a_run(), overrides=LENGTHS)

    (stage,) = prepared_stages(config)
    with pytest.raises(ConfigError, match=r"a train step needs 1\d\d GB on 1 GPU \(computed\)"):
        run(config, local=True)

    assert stage.trainer.trainer_strategy == "fsdp2"


def test_a_local_run_uses_one_gpu_whatever_the_cluster_is_asked_for(alone) -> None:
    config, machine = alone("cluster.node_num=2", "cluster.gpu_per_node=8")

    assert (config.cluster.node_num, config.cluster.gpu_per_node) == (1, 1)
    assert num_ranks(config, machine) == config.explorer.rollout_model.engine_num == 1
    assert [one for one in check(config, machine) if one.severity == "error"] == []


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (f"{ENGINE}.engine_num=2", "2 engines x 1 GPUs need 2 GPUs; --local uses 1. Decrease it"),
        ("trainer.num_ranks=2", "2 trainer ranks need 3 GPUs; --local uses 1. Use 1 or fewer"),
        (f"{ENGINE}.tensor_parallel_size=2", "need 3 GPUs; --local uses 2. Decrease it"),
    ],
)
def test_more_than_a_local_run_has_is_refused_and_the_option_is_named(alone, setting, said) -> None:
    config, machine = alone(setting)

    (found,) = [str(one) for one in check(config, machine) if "GPUs" in one.message]
    assert said in found
    assert found.endswith(", or run over Ray, without --local.")


@pytest.mark.parametrize(
    ("settings", "num_gpus"),
    [
        ((f"{ENGINE}.engine_num=2",), 1),
        (("trainer.num_ranks=2",), 1),
        ((f"{ENGINE}.tensor_parallel_size=2",), 1),
        ((f"{ENGINE}.tensor_parallel_size=2",), 2),
        (("mode=explore", "cluster.gpu_per_node=1", f"{ENGINE}.tensor_parallel_size=4"), 8),
    ],
)
def test_ray_is_no_remedy_where_it_has_no_more_gpus(alone, settings, num_gpus) -> None:
    config, machine = alone(*settings, machine=replace(EIGHT, num_gpus=num_gpus))

    (found,) = [str(one) for one in check(config, machine) if "GPUs" in one.message]
    assert "--local uses" in found
    assert "Ray" not in found


@pytest.mark.parametrize(("num_gpus", "is_remedy"), [(2, False), (3, True)])
def test_ray_is_a_remedy_only_where_the_trainer_has_a_gpu_beside_the_engines(
    alone, monkeypatch, num_gpus, is_remedy
) -> None:
    """In one process the trainer shares the GPU; over Ray an engine for GPUs shares none."""
    find = NamedParts.find

    def found(parts, kind, name):
        part = find(parts, kind, name)
        if kind != "rollout_engine":
            return part
        return replace(part, spec=replace(part.spec, default_for="gpu"))

    config, machine = alone(f"{ENGINE}.engine_num=2", machine=replace(EIGHT, num_gpus=num_gpus))
    monkeypatch.setattr(NamedParts, "find", found)

    (said,) = [one for one in errors(config, machine) if "GPUs" in one]
    assert "2 engines x 1 GPUs need 2 GPUs; --local uses 1." in said
    assert said.endswith(", or run over Ray, without --local.") == is_remedy


def errors(config, machine):
    return [str(one) for one in check(config, machine) if one.severity == "error"]


@pytest.mark.parametrize(
    ("size", "way", "key"),
    [
        ("7B", "", "trainer.num_ranks=0"),
        ("14B", f" and {ENGINE}.engine_num: 1", f"{ENGINE}.engine_num=1"),
    ],
)
def test_a_model_too_large_for_one_gpu_of_eight_is_said_to_fit_over_ray(
    alone, a_run, size, way, key
) -> None:
    """14B on 4 ranks: 52 GB at rest, 15 of gradients, 8 gathered are more than 72; 7 have room."""
    large = replace(EIGHT, model=known_shape(f"Qwen/Qwen2.5-{size}"))

    (found,) = errors(*alone(machine=large))

    assert found.endswith(f"run over Ray, without --local{way}.")
    over_ray = load_config(a_run(), overrides=(*LENGTHS, key))
    assert errors(resolve(over_ray, large), large) == []
    (found,) = errors(*alone(machine=replace(large, num_gpus=1)))
    assert "Ray" not in found


def test_a_file_with_one_engine_is_not_told_to_set_it(alone) -> None:
    large = replace(EIGHT, model=known_shape("Qwen/Qwen2.5-14B"))

    (found,) = errors(*alone(f"{ENGINE}.engine_num=1", machine=large))

    assert found.endswith("run over Ray, without --local.")


@pytest.mark.parametrize(
    ("num", "keys", "is_remedy"),
    [(2, (), False), (2, (f"{ENGINE}.engine_num=1",), False), (3, (), True)],
)
def test_ranks_over_ray_are_on_whole_machines(alone, a_run, num, keys, is_remedy) -> None:
    """32B: 16 ranks have room, 8 have not; of two machines one engine leaves 8, not 15."""
    large = replace(EIGHT, model=known_shape("Qwen/Qwen2.5-32B"))
    cluster = (f"cluster.node_num={num}", "cluster.gpu_per_node=8")
    over_ray = resolve(load_config(a_run(), overrides=(*LENGTHS, *cluster, *keys)), large)

    found = errors(*alone(*cluster, *keys, machine=large))
    (trainer,) = [one for one in found if "a train step needs" in one]

    assert trainer.endswith("run over Ray, without --local.") == is_remedy
    assert ("Ray" in trainer) == is_remedy
    assert (errors(over_ray, large) == []) == is_remedy


@pytest.mark.parametrize(
    ("mode", "num_gpus", "remedy"),
    [
        ("explore", 8, "Use 4 and ENGINE."),
        ("both", 8, "Use 4 and ENGINE over Ray (without --local)."),
        ("explore", 1, "Use larger GPUs, or a smaller model."),
        ("both", 1, "Use larger GPUs, or a smaller model."),
    ],
)
def test_an_engine_too_large_for_one_gpu_is_told_the_width_that_it_can_have(
    alone, mode, num_gpus, remedy
) -> None:
    """32B: 66 GB of weights; 4 GPUs of 40 GB have room for them and for a cache."""
    model = known_shape("Qwen/Qwen2.5-32B")
    small = replace(EIGHT, num_gpus=num_gpus, model=model, gpu_bytes=40 * 10**9)

    found = errors(*alone(f"mode={mode}", f"{ENGINE}.gpu_memory_utilization=0.9", machine=small))

    (engine,) = [one for one in found if "an engine holds" in one]
    wide = r"(engine_type: vllm|an engine_type that provides 'tensor_parallel')"  # if it is here
    assert re.search(f"{re.escape(remedy).replace('ENGINE', wide)}$", engine)


def test_an_engine_that_spreads_keeps_its_gpus_in_one_process(alone) -> None:
    """No trainer: one that trains beside another file's wide engine is still one rank."""
    config, machine = alone("mode=explore", f"{ENGINE}.tensor_parallel_size=4")
    trains, wide = alone("mode=train", f"{ENGINE}.tensor_parallel_size=4")

    assert machine.num_gpus == 4
    assert config.explorer.rollout_model.engine_num == 1
    assert num_ranks(trains, wide) == 1


def test_each_stage_of_a_local_run_uses_the_gpus_of_its_own_engine(a_run) -> None:
    """A stage that trains shares one GPU with its engine; the other's engine spreads over four."""
    file = a_run("""\
        stages:
          - {stage_name: narrow, mode: both}
          - stage_name: wide
            mode: explore
            explorer: {rollout_model: {tensor_parallel_size: 4}}
    """)

    config = load_config(file, overrides=LENGTHS)
    stages = stages_on(config, EIGHT, manager=run_manager(config), local=True)

    assert [machine.num_gpus for _, machine in stages] == [1, 4]
    narrow, wide = (stage.explorer.rollout_model for stage, _ in stages)
    assert (narrow.engine_num, wide.engine_num) == (1, 1)
    assert narrow.gpu_memory_utilization < wide.gpu_memory_utilization == 0.9


def test_without_gpus_a_local_run_says_what_was_asked_for(alone) -> None:
    config, machine = alone("cluster.gpu_per_node=8", machine=Machine())

    assert machine.num_gpus == 0
    assert any("requested GPUs (cluster.gpu_per_node), found none" in one for one in config.notes)
