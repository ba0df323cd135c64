"""Whole runs of a team: two agents share a frozen model, and each trains a LoRA adapter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml
from safetensors.torch import load_file
from trinity.common.config import load_config, probe, resolve_stages
from trinity.errors import ConfigError, ModelError, TrinityError
from trinity.extend import set_manager
from trinity.runtime.record.result import closing_lines
from trinity.runtime.run import run
from trinity_testing.tiny import make_tiny_model
from trinity_tinker.agents.refusals import problems

pytest.importorskip("peft")

NUM_STEPS = 8
PLUGIN = """
from trinity.common.workflows import WORKFLOWS, Workflow


def share(letter, text):
    return sum(one == letter for one in text) / max(1, len(text))


@WORKFLOWS.register_module("solve_and_check")
class SolveAndCheck(Workflow):
    \"\"\"One agent answers, and is paid for e; the other judges, and is paid for o.\"\"\"

    can_reset = True

    def run(self):
        solver, checker = self.model.adapter("solver"), self.model.adapter("checker")
        asked = {"role": "user", "content": self.task.task_desc}
        [answer] = solver.chat([asked])
        said = {"role": "assistant", "content": answer.response_text}
        [verdict] = checker.chat([asked, said, {"role": "user", "content": "right?"}])
        answer.reward = share("e", answer.response_text)
        verdict.reward = share("o", verdict.response_text)
        return [answer, verdict]


@WORKFLOWS.register_module("asks_nobody")
class AsksNobody(Workflow):
    def run(self):
        name = self.task.workflow_args.get("name")
        model = self.model.adapter(name) if name else self.model
        return model.chat([{"role": "user", "content": self.task.task_desc}])
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Return a function that writes a configuration, with values by path, and gives its file."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/two_agents.py").write_text(PLUGIN)
    make_tiny_model(tmp_path / "tiny")
    rows = [json.dumps({"q": f"say {number}", "a": "e"}) for number in range(64)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    monkeypatch.setenv("TRINITY_PLUGIN_DIRS", str(tmp_path / "plugins"))
    before = set_manager(None)  # another test may have found the plugins already

    def write(name, **changes):
        taskset = {"name": "t", "path": str(tmp_path / "rows.jsonl")}
        taskset |= {"format": {"prompt_key": "q", "response_key": "a"}}
        taskset |= {"default_workflow_type": "solve_and_check"}
        config = {
            "project": "p",
            "name": name,
            "checkpoint_root_dir": str(tmp_path),
            "algorithm": {"algorithm_type": "grpo", "repeat_times": 8, "kl_loss_fn": "none"},
            "model": {"model_path": str(tmp_path / "tiny"), "max_model_len": 96},
            "buffer": {"batch_size": 4, "train_batch_size": 64, "total_steps": NUM_STEPS},
            "trainer": {"save_interval": 3},
            "synchronizer": {"sync_method": "memory", "sync_interval": 1},
            "audit": "stop",
        }
        config["algorithm"]["optimizer"] = {"lr": 0.02}
        config["model"] |= {"max_response_tokens": 8}
        config["model"]["lora_configs"] = [
            {"name": "solver", "lora_rank": 8, "lora_alpha": 16},
            {"name": "checker", "lora_rank": 8, "lora_alpha": 64},
        ]
        config["buffer"]["explorer_input"] = {"taskset": taskset}
        for path, value in changes.items():
            *parents, last = path.split("__")
            section = config
            for parent in parents:
                section = section.setdefault(parent, {})
            section[last] = value
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        return file

    yield write
    set_manager(before)


def told(folder, name):
    """Return a metric of each train step."""
    lines = (folder / "monitor/metrics.jsonl").read_text().splitlines()
    found = {row["step"]: row[name] for row in map(json.loads, lines) if name in row}
    return [found[step] for step in sorted(found)]


REWARDS = ("adapter/solver/reward", "adapter/checker/reward")


@pytest.mark.acceptance
def test_two_agents_learn_what_each_is_paid_for_and_a_killed_run_goes_on(write, tmp_path) -> None:
    run(write("whole"), local=True)
    file = write("killed")
    command = [sys.executable, "-m", "trinity.cli.main", "run", "--config", str(file), "--local"]
    process = subprocess.Popen(command, env=dict(os.environ))
    while not list((tmp_path / "p/killed").glob("global_step_3/state.json")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run(file, local=True)

    for folder in (tmp_path / "p/whole", tmp_path / "p/killed"):
        for name in REWARDS:
            rewards = told(folder, name)
            assert len(rewards) == NUM_STEPS
            assert rewards[0] < 0.1
            assert rewards[-1] > 0.3
    last = tmp_path / "p/whole/global_step_8/actor/adapter"
    assert sorted(one.name for one in last.iterdir()) == ["checker", "solver"]


def test_a_step_trains_both_agents_and_tells_of_each(write, tmp_path) -> None:
    result = run(write("short", buffer__total_steps=2, algorithm__kl_loss_fn="k2"), local=True)

    folder = tmp_path / "p/short"
    assert told(folder, "actor/kl_loss")[0] == 0.0  # an adapter begins as the frozen model
    assert told(folder, "actor/kl_loss")[1] > 0.0
    assert f"model: {folder}/global_step_2/actor/adapter" in closing_lines(result)
    assert told(folder, "adapter/solver/num_samples") == [32.0, 32.0]
    assert told(folder, "adapter/checker/num_samples") == [32.0, 32.0]
    assert all(gap < 1e-5 for gap in told(folder, "actor/rollout_logprob_diff"))
    export = pytest.importorskip("trinity_lab.export_command").export
    evaluate = pytest.importorskip("trinity_lab.eval_command").evaluate
    with pytest.raises(ConfigError, match=r"no model\. A team is evaluated in its run, by buffer"):
        evaluate([str(folder)], data=tmp_path / "rows.jsonl")
    checkpoint, to = folder / "global_step_2", tmp_path / "exported"
    with pytest.raises(ConfigError, match=r"several agents: checker, solver\. Name one: --adap"):
        export(checkpoint, to)
    with pytest.raises(ConfigError, match=r"'solvr'\. Did you mean 'solver'"):
        export(checkpoint, to, adapter="solvr")

    export(checkpoint, to, adapter="checker")

    own = load_file(to / "model.safetensors")
    base = load_file(tmp_path / "tiny/model.safetensors")
    factors = load_file(checkpoint / "actor/adapter/checker/adapter_model.safetensors")
    layer = "model.layers.0.self_attn.q_proj"
    lower, upper = (factors[f"base_model.model.{layer}.lora_{part}.weight"] for part in "AB")
    wanted = base[f"{layer}.weight"] + (64 / 8) * upper @ lower
    assert torch.allclose(own[f"{layer}.weight"], wanted, atol=1e-6)
    assert not torch.allclose(own[f"{layer}.weight"], base[f"{layer}.weight"], atol=1e-4)
    (tmp_path / "tiny").rename(tmp_path / "moved")
    with pytest.raises(ModelError, match=r"in which the run started: export there\."):
        export(checkpoint, tmp_path / "other", adapter="solver")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, r"several adapters: solver, checker\. Say which agent speaks"),
        ({"name": "solvr"}, r"named 'solvr'\. Did you mean 'solver'\? Known: checker, solver\."),
    ],
)
def test_a_workflow_that_names_no_agent_of_the_run_is_told_the_names(write, args, message) -> None:
    changes = {
        "buffer__explorer_input__taskset__default_workflow_type": "asks_nobody",
        "buffer__explorer_input__taskset__workflow_args": args,
    }

    with pytest.raises(TrinityError, match=message):
        run(write("nobody", **changes), local=True)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("explorer.rollout_model.engine_type", "vllm", r"engine_type: is 'vllm', but model"),
        ("explorer.rollout_model.dtype", "bfloat16", r"dtype: is bfloat16, and trainer\.precision"),
        ("synchronizer.sync_method", "nccl", r"sync_method: is 'nccl', but model\.lora_configs"),
        ("synchronizer.sync_method", "ipc", r"sync_method: is 'ipc', but model\.lora_configs"),
    ],
)
def test_what_needs_a_gpu_is_refused_by_its_key_too(write, path, value, message) -> None:
    file = write("on_gpus")
    config = load_config(file)
    [stage] = resolve_stages(config, probe(model_path=config.model.model_path))
    assert list(problems(stage)) == []

    *sections, last = path.split(".")
    section = stage
    for name in sections:
        section = getattr(section, name)
    setattr(section, last, value)

    [problem] = problems(stage)
    assert re.search(message, str(problem))


@pytest.mark.ray
@pytest.mark.acceptance
def test_over_ray_the_way_out_is_named(write, monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")

    with pytest.raises(TrinityError, match=r"not over Ray\. Start it with: trinity run --local"):
        run(write("over_ray"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "bench"}, r"lora_configs: has several adapters, which mode bench would not"),
        ({"explorer__rollout_model__engine_type": "tinker"}, r"engine_type: is 'tinker', but mod"),
        ({"trainer__trainer_type": "tinker"}, r"trainer_type: is 'tinker', but model\.lora_conf"),
        ({"trainer__trainer_strategy": "fsdp2"}, r"trainer_strategy: is 'fsdp2', but model"),
        ({"trainer__num_ranks": 2}, r"num_ranks: is 2, but trainer multi_lora is one process"),
        ({"trainer__param_offload": True}, r"param_offload: is True, but model\.lora_configs"),
        ({"algorithm__algorithm_type": "ppo"}, r"algorithm_type: has a critic, but model"),
        ({"model__lora_configs": [{"name": "a"}, {}]}, r"lora_configs\.1\.name: is ''; each of"),
        ({"model__lora_configs": [{"name": "a"}] * 2}, r"'a' is also that of entry 0"),
        ({"model__lora_configs": [{"name": "a"}, {"name": "b/c"}]}, r"1\.name: is 'b/c'"),
        (
            {"explorer__auxiliary_models": [{"name": "solver"}]},
            r"auxiliary_models: has a model 'solver'",
        ),
        (
            {"stages": [{"stage_name": "one", "mode": "both"}]},
            r"stages: hand on one merged model, but model\.lora_configs has several",
        ),
    ],
)
def test_what_several_adapters_do_not_go_with_is_refused_by_key_and_line(
    write, tmp_path, changes, message
) -> None:
    with pytest.raises(ConfigError, match=rf"refused\.yaml:\d+: .*{message}"):
        run(write("refused", **changes), local=True)

    assert not (tmp_path / "p").exists()
