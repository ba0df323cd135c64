"""Settings of published files that name another machine, another engine, or leave something out."""

from __future__ import annotations

import re

import pytest
from trinity.common.config import Config, check, load_config, resolve
from trinity.common.config.problem import listed
from trinity.errors import ConfigError
from trinity.extend import ComponentSpec, Origin

ENGINE = "explorer.rollout_model.engine_type"
ULYSSES = "trainer.ulysses_sequence_parallel_size"


def found(config, machine, manager=None) -> list[str]:
    return listed(p for p in check(config, machine, manager=manager) if p.severity != "notice")


@pytest.mark.parametrize("key", ["node_num", "gpu_per_node"])
def test_null_machines_are_as_many_as_there_are(key, a_run, cpu, builtin_only) -> None:
    config = resolve(load_config(a_run(f"cluster: {{{key}: null}}")), cpu)

    assert config.flat() == resolve(load_config(a_run("cluster: {}")), cpu).flat()
    assert config.notes == []


def test_machines_of_one_engine_are_read_by_engines_for_gpus(a_run, cpu, builtin_only) -> None:
    config = load_config(a_run("explorer: {rollout_model: {nnodes: 2}}"))

    config = resolve(config, cpu)

    assert found(config, cpu) == []
    assert any("rollout_model.nnodes" in note for note in config.notes)


def test_a_sequence_shared_by_gpus_follows_a_machine_without_any(a_run, cpu, builtin_only) -> None:
    config = resolve(load_config(a_run("trainer: {ulysses_sequence_parallel_size: 2}")), cpu)

    assert config.trainer.ulysses_sequence_parallel_size == 1
    assert config.notes == [f"requested {ULYSSES} 2, found no GPU, using 1"]
    assert found(config, cpu) == []


def test_an_engine_of_ours_that_is_not_installed_is_the_embedded_one_without_gpus(
    a_run, cpu, builtin_only
) -> None:
    config = resolve(load_config(a_run("explorer: {rollout_model: {engine_type: vllm}}")), cpu)

    assert config.explorer.rollout_model.engine_type == "transformers"
    assert found(config, cpu) == []
    (note,) = config.notes
    assert (
        note
        == f"requested {ENGINE} vllm, found no GPU and no trinity-engine-vllm, using transformers"
    )


def test_an_engine_of_ours_that_is_not_installed_is_an_error_with_gpus(
    a_run, gpus, builtin_only, golden
) -> None:
    config = resolve(load_config(a_run(), overrides=[f"{ENGINE}=vllm"]), gpus)

    (problem,) = [line for line in found(config, gpus) if ENGINE in line]
    golden(problem, "config_engine_not_installed")


def test_an_engine_that_nobody_knows_is_an_error_on_any_machine(a_run, cpu, builtin_only) -> None:
    config = resolve(load_config(a_run("explorer: {rollout_model: {engine_type: vlllm}}")), cpu)

    (problem,) = found(config, cpu)
    assert "no rollout_engine named 'vlllm'" in problem


def test_an_engine_that_is_installed_is_used_without_gpus_too(a_run, cpu, builtin_only) -> None:
    (plugin,) = builtin_only._records()
    spec = ComponentSpec("trinity.engines.transformers_engine:TransformersEngine")
    origin = Origin("vllm", "trinity-engine-vllm", "1.0", "wheel")
    engine = type(plugin.components[0])("rollout_engine", "vllm", spec, origin)
    builtin_only._loaded = [
        type(plugin)(**{**vars(plugin), "components": (*plugin.components, engine)})
    ]

    config = resolve(load_config(a_run("explorer: {rollout_model: {engine_type: vllm}}")), cpu)

    assert config.explorer.rollout_model.engine_type == "vllm"
    assert config.notes == []


def test_a_run_that_only_explores_takes_the_default_algorithm(
    a_file, a_model, some_tasks, cpu
) -> None:
    path = a_file(f"""
    mode: explore
    model: {{model_path: {a_model}}}
    buffer:
      explorer_input:
        taskset: {{path: {some_tasks}, default_workflow_type: math_workflow,
                   format: {{prompt_key: question, response_key: answer}}}}
    """)

    assert found(resolve(load_config(path), cpu), cpu) == []


def a_program_without_a_workflow(a_model, some_tasks) -> Config:
    taskset = {"path": str(some_tasks), "format": {"prompt_key": "question"}}
    return Config(
        model={"model_path": str(a_model)},
        algorithm={"algorithm_type": "grpo"},
        buffer={"explorer_input": {"taskset": taskset}},
    )


def test_a_program_may_check_before_it_names_the_workflow(
    a_model, some_tasks, builtin_only
) -> None:
    config = a_program_without_a_workflow(a_model, some_tasks).check_and_update()

    assert any("nothing says which workflow" in note for note in config.notes)


def test_a_run_without_a_workflow_is_refused(a_model, some_tasks, builtin_only) -> None:
    from trinity.common.config import prepared_stages

    with pytest.raises(ConfigError, match="nothing says which workflow") as refused:
        prepared_stages(a_program_without_a_workflow(a_model, some_tasks))

    named = re.findall(r"\w+_workflow\b", str(refused.value).partition("Write ")[2])
    assert named == ["simple_workflow", "math_workflow"]
    for name in named:
        builtin_only.find("workflow", name)  # raises where there is none
