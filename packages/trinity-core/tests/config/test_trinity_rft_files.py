"""Configurations of Trinity-RFT load here, and come to the same values."""

from __future__ import annotations

import json
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.extend import PluginManager, set_manager

DATA = Path(__file__).parent / "data"
FILES = sorted((DATA / "trinity_rft").glob("*.yaml"))
TUTORIALS = sorted((DATA / "tutorials").glob("*.yaml"))
ENV = {
    "TRINITY_CHECKPOINT_ROOT_DIR": "CHECKPOINT_ROOT",
    "TRINITY_MODEL_PATH": "MODEL",
    "TRINITY_TASKSET_PATH": "DATASET",
}
RESOLVED = json.loads((DATA / "resolved.json").read_text())

AUXILIARY = "sections of auxiliary models stay as written: what they leave out follows at the start"
#: path ([] for an index) -> (in how many files, why it differs)
DIFFERENCES = {
    "algorithm.advantage_fn": (
        4,
        "sft, dpo and raft use no advantage; the published fallback ppo has no effect",
    ),
    "algorithm.advantage_fn_args.gamma": (4, "of that ppo"),
    "algorithm.advantage_fn_args.lam": (4, "of that ppo"),
    "algorithm.sample_strategy": (
        1,
        "opmd names warmup, as its tutorial does: an alias of default",
    ),
    "buffer.trainer_input.experience_buffer": (
        1,
        "always there, as a queue; mode bench ignores it",
    ),
    "buffer.trainer_input.experience_buffer.path": (11, "a queue has no file here"),
    "checkpoint_root_dir": (1, "empty: ./checkpoints; the published run was given a folder"),
    "cluster.gpu_per_node": (1, "0 stays: as many as there are"),
    "cluster.node_num": (1, "0 stays: as many as there are"),
    "explorer.auxiliary_models[].dtype": (2, AUXILIARY),
    "explorer.auxiliary_models[].enable_openai_api": (2, AUXILIARY),
    "explorer.auxiliary_models[].enable_prompt_truncation": (2, AUXILIARY),
    "explorer.auxiliary_models[].engine_type": (2, AUXILIARY),
    "explorer.auxiliary_models[].max_model_len": (1, AUXILIARY),
    "explorer.auxiliary_models[].seed": (2, AUXILIARY),
    "explorer.auxiliary_models[].temperature": (2, AUXILIARY),
    "explorer.auxiliary_models[].top_k": (2, AUXILIARY),
    "explorer.auxiliary_models[].top_p": (2, AUXILIARY),
    "explorer.eval_interval": (
        4,
        "not rounded to a multiple of sync_interval behind the user's back",
    ),
    "explorer.listen_address": (25, "who is to reach a service from elsewhere says so"),
    "explorer.rollout_model.engine_num": (1, "not given: half of the GPUs"),
    "explorer.rollout_model.engine_type": (
        22,
        "not given: the engine by priority, here the embedded one",
    ),
    "explorer.rollout_model.tensor_parallel_size": (1, "1 for a model behind an API, not 0"),
    "model.lora_configs[].path": (1, "the trainer makes the adapter: there is no folder of it"),
    "monitor.monitor_args.api_key": (5, "a monitor's own defaults are its own"),
    "monitor.monitor_args.base_url": (5, "a monitor's own defaults are its own"),
    "synchronizer.sync_method": (6, "checkpoint is to come: memory, and a note"),
    "trainer.max_token_len_per_gpu": (1, "filled in for mode bench too"),
    "trainer.trainer_type": (25, "verl means Trinity's own trainer, torch"),
    "trainer.trainer_strategy": (24, "fsdp; ddp here, where a rank holds the whole model"),
}


@pytest.fixture
def our_plugins():
    """Use the plugins of this repository only."""
    ours = {"builtin", "algorithms", "opmd"}
    found = [e for e in entry_points(group="trinity.plugins") if e.name in ours]
    manager = PluginManager.discover(env={}, entry_points=found)
    before = set_manager(manager)
    yield manager
    set_manager(before)


@pytest.mark.parametrize("path", [*FILES, *TUTORIALS], ids=lambda path: path.stem)
def test_the_file_loads_without_an_unknown_key(path) -> None:
    load_config(path, env=ENV)


def test_all_files_are_here() -> None:
    assert len(FILES) == 28
    assert len(RESOLVED["files"]) == 25


@pytest.mark.parametrize("path", [*FILES, *TUTORIALS], ids=lambda path: path.stem)
def test_what_is_missing_is_one_line_each(path, cpu, our_plugins) -> None:
    config = resolve(load_config(path, env=ENV), cpu)

    lines = [str(problem) for problem in check(config, cpu, manager=our_plugins)]

    assert not any("\n" in line or "unknown key" in line for line in lines)


def differences(gpus, manager) -> dict[str, int]:
    """Return how often each path differs."""
    found: dict[str, int] = {}
    for name, own in RESOLVED["files"].items():
        config = resolve(load_config(DATA / "trinity_rft" / name, env=ENV), gpus, manager=manager)
        assert config.algorithm.algorithm_type in manager.names("algorithm")
        ours = config.flat()
        for path, value in {**RESOLVED["all"], **own}.items():
            if path not in ours or ours[path] != value:
                general = re.sub(r"\.\d+(?=\.|$)", "[]", path)
                found[general] = found.get(general, 0) + 1
    return found


def test_the_resolved_values_are_the_published_ones_but_for_these(gpus, our_plugins) -> None:
    found = differences(gpus, our_plugins)

    assert found == {path: count for path, (count, _) in DIFFERENCES.items()}
