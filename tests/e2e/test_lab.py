"""The commands of trinity-lab with real runs of a tiny model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml
from trinity_testing.history import read_history

REWARD = """
from trinity.common.rewards import REWARD_FUNCTIONS, RewardFn


@REWARD_FUNCTIONS.register_module("even_reward")
class EvenReward(RewardFn):
    def __call__(self, *, response_token, **kwargs) -> dict[str, float]:
        return {"even": sum(int(token) % 2 == 0 for token in response_token) / 8}
"""


@pytest.fixture
def trained(config_dict, taskset, write_yaml, trinity, run_dir, plugin_dir):
    """Return the checkpoint of a run that trained LoRA adapters for two steps."""
    pytest.importorskip("peft")
    config_dict["model"]["lora_configs"] = [{"name": "lora", "lora_rank": 4, "lora_alpha": 64}]
    config_dict["algorithm"]["optimizer"]["lr"] = 0.05
    taskset["default_reward_fn_type"] = "even_reward"
    held_out = taskset | {"name": "held_out", "repeat_times": 2}
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [held_out]
    folder = plugin_dir(REWARD, "rewards_of_test.py")
    file = write_yaml(config_dict)
    ended = trinity("run", "--local", "--config", file, "--plugin-dir", folder)
    assert ended.code == 0, ended.stdout + ended.stderr
    return run_dir / "global_step_2"


def test_an_exported_model_has_the_logits_of_the_base_with_its_adapters(
    trained, tiny_model, trinity, tmp_path
) -> None:
    import peft
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path / "exported"
    ended = trinity("export", trained, "--to", folder, "--license", "apache-2.0")

    assert ended.code == 0, ended.stderr
    assert f"serve it: vllm serve {folder}" in ended.stdout
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    exported = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.arange(40)[None]
    adapter = trained / "actor" / "adapter"
    with torch.no_grad():
        own, logits = base(ids).logits, exported(ids).logits
        peft.inject_adapter_in_model(peft.PeftConfig.from_pretrained(adapter), base)
        peft.set_peft_model_state_dict(base, load_file(adapter / "adapter_model.safetensors"))
        expected = base(ids).logits
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert (own - logits).abs().max() > 1e-3  # the adapters are in it
    assert AutoTokenizer.from_pretrained(folder).chat_template
    card = (folder / "README.md").read_text()
    for part in (
        "license: apache-2.0",
        f"base_model: {tiny_model.name}\n",
        "rows.jsonl",
        "lora_rank: 4",
    ):
        assert part in card
    assert "| eval/held_out/reward/mean@2 |" in card
    assert trinity("export", trained, "--to", folder).stderr.endswith("Name a new folder.\n")


def test_checkpoints_and_the_base_model_are_evaluated_in_one_call(
    trained, tiny_model, rows, trinity
) -> None:
    ended = trinity(
        *("eval", tiny_model, trained, "--data", rows, "--repeat", 4, "--local"),
        *("--passes-at", 0.5, "--workflow", "simple_workflow", "--reward", "format_reward"),
        "--json",
    )

    assert ended.code == 0, ended.stderr
    assert "note:" not in ended.stderr  # of a setting that nobody made
    told = [one for one in ended.stderr.splitlines() if one.startswith("evaluation ")]
    assert [re.sub(r"[-\d.]+$", "#", one) for one in told] == [
        "evaluation rows/reward/mean@4 #",
        "evaluation after step 2: rows/reward/mean@4 #",
    ]
    base, checkpoint = json.loads(ended.stdout)["models"]
    assert (base["model"], checkpoint["model"]) == ("model", "tiny/global_step_2")
    assert list(base["scores"]) == ["mean@4", "pass@1", "pass@2", "pass@4"]
    for one in (base, checkpoint):
        bench = json.loads(Path(one["directory"], "bench.json").read_text())["evaluation"]
        assert one["scores"]["mean@4"]["value"] == pytest.approx(bench["eval/rows/reward/mean@4"])
    limits = [
        yaml.safe_load(Path(one["directory"], "config.yaml").read_text())["model"]
        for one in (base, checkpoint)
    ]  # of the base model too, else they could not be compared
    assert [one["max_response_tokens"] for one in limits] == [8, 8]
    told = trinity("compare", base["directory"], checkpoint["directory"]).stdout
    assert "model_path=" in told
    assert "model_path=/" not in told  # the folders that both share
    assert "= <" not in told


def test_an_evaluation_without_a_reward_names_the_option_not_a_file_of_its_own(
    tiny_model, rows, trinity
) -> None:
    ended = trinity(
        *("eval", tiny_model, "--data", rows, "--local"),
        *("--set", "buffer.explorer_input.eval_tasksets.0.format.prompt_key=question"),
    )

    assert ended.code == 1
    assert "the evaluation: buffer.explorer_input.eval_tasksets.0.default_rew" in ended.stderr
    assert "--reward" in ended.stderr
    assert ".yaml" not in ended.stderr


@pytest.mark.acceptance
def test_a_run_trains_on_the_rollouts_of_another_with_another_reward(
    config_dict, write_yaml, trinity, run_dir, plugin_dir, tmp_path
) -> None:
    config_dict["buffer"]["total_epochs"] = 3
    folder, to = plugin_dir(REWARD, "rewards_of_test.py"), tmp_path / "even"
    first = trinity("run", "--local", "--config", write_yaml(config_dict))
    assert first.code == 0, first.stderr

    scored = trinity(
        *("rescore", run_dir, "--reward", "even_reward", "--plugin-dir", folder, "--to", to)
    )
    assert scored.code == 0, scored.stderr
    checked = trinity("config", "check", to / "run.yaml")
    ended = trinity("run", "--local", "--config", to / "run.yaml")

    assert checked.stdout.startswith(f"{to / 'run.yaml'}: ok")
    assert ended.code == 0, ended.stdout + ended.stderr
    child = run_dir.with_name("even")
    rows = [json.loads(one) for one in (child / "monitor/metrics.jsonl").read_text().splitlines()]
    steps = {row["step"]: row for row in rows if row["role"] == "trainer"}
    assert list(steps) == [1, 2, 3, 4, 5, 6]
    weights = [row["actor/rollout_correction/weight_mean"] for row in steps.values()]
    assert weights[0] == pytest.approx(1.0, abs=1e-5)  # the policy of the first step sampled these
    assert weights[-1] != pytest.approx(1.0, abs=1e-5)
    assert [row["actor/grad_norm"] > 0 for row in steps.values()] == [True] * 6
    before, after = (_samples(one) for one in (run_dir, child))
    assert before.keys() == after.keys()
    for eid, one in after.items():
        even = sum(int(token) % 2 == 0 for token in one.tokens[one.prompt_length :]) / 8
        assert one.reward == pytest.approx(even)
        assert one.logprobs == pytest.approx(before[eid].logprobs)


def _samples(directory):
    from trinity.runtime.record.sample_files import places_of, read_step

    return {one.eid: one for place in places_of(directory) for one in read_step(place)}


@pytest.mark.acceptance
def test_a_sweep_that_is_killed_twice_gives_the_numbers_of_one_that_is_not(
    config_dict, taskset, write_yaml, tmp_path, trinity
) -> None:
    held_out = taskset | {"name": "held_out", "repeat_times": 2}
    config_dict["buffer"]["explorer_input"]["eval_tasksets"] = [held_out]
    config_dict["buffer"]["total_steps"] = 6
    config_dict["trainer"] = {"save_interval": 1}
    config_dict["sweep"] = {"algorithm.policy_loss_fn": ["ppo", "gspo"], "seed": 2}
    file = write_yaml(config_dict)
    command = [sys.executable, "-m", "trinity", "sweep", str(file), "--local", "--parallel", "2"]
    results = tmp_path / "checkpoints/e2e/tiny.sweep/results.jsonl"
    for num_done in (0, 2):
        process = subprocess.Popen(command, cwd=tmp_path, start_new_session=True)
        deadline = time.monotonic() + 300
        while _num_begun(tmp_path) <= num_done:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    subprocess.run([*command, "--set", "name=whole"], cwd=tmp_path, check=True, timeout=600)

    ends = [json.loads(line) for line in results.read_text().splitlines()]
    assert len({end["name"] for end in ends if end["exit_code"] == 0}) == 4
    told = [
        json.loads(trinity("compare", f"checkpoints/e2e/{name}.sweep", "--json").stdout)
        for name in ("tiny", "whole")
    ]
    killed, whole = ([run["value"] for arm in one["arms"] for run in arm["runs"]] for one in told)
    assert killed == whole
    runs = sorted(tmp_path.glob("checkpoints/e2e/tiny-*"))
    assert len(runs) == 4
    assert any(len((run / "starts.jsonl").read_text().splitlines()) > 1 for run in runs)
    for run in runs:  # nothing is lost or doubled, and each number is that of an unbroken run
        other = run.with_name(run.name.replace("tiny", "whole", 1))
        history = read_history(run)
        assert set(Counter(eid for step in history for eid in step).values()) == {1}
        assert history == read_history(other)
        weights = "global_step_6/actor/huggingface/model.safetensors"
        assert (run / weights).read_bytes() == (other / weights).read_bytes()


def _num_begun(folder) -> int:
    """Return how many runs of the sweep have trained a step."""
    return len({one.parent for one in folder.glob("checkpoints/e2e/tiny-*/global_step_1")})
