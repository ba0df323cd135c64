"""A trainer of two processes over Ray gives the numbers and weights of one."""

from __future__ import annotations

import json

import pytest
import torch
import trinity
import yaml
from trinity.common.config import load_config
from trinity.runtime.record.result import RunStatus

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def trained(config, write_yaml, name, *, local=False, **trainer):
    """Return a run's result, its metrics but for times, and its weights."""
    from safetensors.torch import load_file

    settings = config | {"name": name, "trainer": trainer}
    result = trinity.run(load_config(write_yaml(settings)), local=local)
    lines = (result.directory / "monitor" / "metrics.jsonl").read_text().splitlines()
    rows = [
        {
            name: value
            for name, value in json.loads(line).items()
            if isinstance(value, float | int) and not name.startswith(("time/", "perf/"))
        }
        for line in lines
    ]
    model = result.stages[-1].checkpoint / "actor/huggingface/model.safetensors"
    return result, rows, load_file(model)


@pytest.fixture
def demonstrations(config_dict, tmp_path):
    """Return a run that trains three steps on written conversations of many lengths."""
    lines = [
        [
            {"role": "user", "content": "say a"},
            {"role": "assistant", "content": "a b" * (n % 5 + 1)},
        ]
        for n in range(24)
    ]
    path = tmp_path / "sft.jsonl"
    path.write_text("".join(json.dumps({"messages": line}) + "\n" for line in lines))
    storage = {
        "storage_type": "file",
        "path": str(path),
        "format": {"prompt_type": "messages", "messages_key": "messages"},
    }
    return config_dict | {
        "mode": "train",
        "algorithm": {"algorithm_type": "sft", "optimizer": {"lr": 1e-3}},
        "buffer": {
            "train_batch_size": 8,
            "total_steps": 3,
            "trainer_input": {"experience_buffer": storage},
        },
    }


@pytest.mark.acceptance
@pytest.mark.parametrize("strategy", ["fsdp2", "ddp"])
def test_two_ranks_have_the_metrics_and_weights_of_one_process(
    demonstrations, write_yaml, ray_cluster, strategy
) -> None:
    _, expected, weights = trained(demonstrations, write_yaml, "here", local=True)

    result, rows, found = trained(
        demonstrations, write_yaml, "there", num_ranks=2, trainer_strategy=strategy
    )

    assert result.status is RunStatus.FINISHED
    assert (result.directory / "logs" / "trainer-1.log").is_file()
    assert len(rows) == len(expected) == 3
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-5, abs=1e-7)
    for name, weight in weights.items():
        assert (found[name] - weight).abs().max() <= 1e-5


@pytest.mark.acceptance
def test_two_ranks_that_share_each_sequence_have_the_metrics_and_weights_of_one_process(
    demonstrations, write_yaml, ray_cluster
) -> None:
    """Each has one half of the tokens, and of the heads in attention."""
    _, expected, weights = trained(demonstrations, write_yaml, "here", local=True)

    result, rows, found = trained(
        demonstrations, write_yaml, "there", num_ranks=2, ulysses_sequence_parallel_size=2
    )

    assert result.status is RunStatus.FINISHED
    assert (result.directory / "logs" / "trainer-1.log").is_file()
    assert len(rows) == len(expected) == 3
    resolved = yaml.safe_load((result.directory / "config.yaml").read_text())["trainer"]
    assert resolved["ulysses_sequence_parallel_size"] == 2
    assert rows[0]["actor/grad_norm"] > 0
    for row, other in zip(rows, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-6, abs=1e-6)
    ours, theirs = (
        torch.cat([one[name].flatten() for name in weights]) for one in (found, weights)
    )
    assert (ours - theirs).norm() <= 1e-6 * theirs.norm()
