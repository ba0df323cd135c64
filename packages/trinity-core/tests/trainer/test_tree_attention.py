from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from trinity.common.config.model import LoRAConfig
from trinity.common.experience import Experience
from trinity.errors import NotSupportedYetError
from trinity.trainer import sharing_trial
from trinity.trainer.lora import Adapters
from trinity.trainer.microbatch import model_inputs
from trinity.trainer.policy import Policy, Wanted
from trinity.trainer.prefix_tree import (
    PrefixSharing,
    hidden_states,
    one_pack_per_row,
    pack_rows,
    rows_of,
)
from trinity.trainer.sharing_trial import find_prefix_sharing

WINDOW = 6
MIXED = {
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
MODELS = {
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "qwen3 with windows": ("qwen3", MIXED | {"use_sliding_window": True}),
    "llama": ("llama", {}),
    "mistral": ("mistral", {"sliding_window": None}),
    "mistral with a window": ("mistral", {"sliding_window": WINDOW}),
    "gemma3 with windows": ("gemma3_text", MIXED),
}


def a_policy(name, *, precision="float32", **settings):
    architecture, own = MODELS[name]
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        architecture,
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.2,
        pad_token_id=0,
        **own,
    )
    module = AutoModelForCausalLM.from_config(config, dtype=torch.float32, **settings)
    return Policy(module.eval(), precision=precision)


def answers(*, stem=12, num=4, seed=0):
    """Return rows that share a stem longer than the window, one of them in two steps."""
    draw = np.random.default_rng(seed)
    prompt = draw.integers(1, 64, stem)
    rows = [np.concatenate((prompt, draw.integers(1, 64, 5 + n))) for n in range(num)]
    return [*rows, np.concatenate((rows[0], draw.integers(1, 64, 9)))]


def a_tree():
    """Return rows that part at several places, and one with nothing in common."""
    rows = answers()
    other = np.concatenate((rows[1][:15], [60, 61, 62]))
    return [*rows, other, np.array([63, 1, 2, 3])]


def gradient(policy, rows, packs):
    """Return the gradient of a weighed sum of all rows' log-probabilities and entropies."""
    policy.module.zero_grad()
    for pack in packs:
        part = [
            Experience(tokens=torch.from_numpy(rows[row]), prompt_length=1) for row in pack.rows
        ]
        mask = torch.zeros((len(part), max(map(len, rows)) - 1), dtype=torch.bool)
        for place, exp in enumerate(part):
            mask[place, : exp.response_length] = True
        with policy.recomputing():
            scores = policy.score(model_inputs(part, mask, [pack]), Wanted(entropy=True))
            draw = torch.Generator().manual_seed(7)
            weights = torch.randn((2, len(rows), mask.shape[1]), generator=draw)[:, list(pack.rows)]
            loss = (weights[0] * scores.logprob).sum() + (weights[1] * scores.entropy).sum()
            loss.backward()
    return torch.cat([p.grad.flatten() for p in policy.module.parameters() if p.grad is not None])


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("way", "rows"), [("cache", answers()), ("mask", a_tree())])
def test_the_gradient_is_that_of_the_rows_apart(name, way, rows):
    policy = a_policy(name)
    packs = pack_rows(rows, sharing=PrefixSharing(ways={way}, token_cost=1e9), max_tokens=999)
    assert len(packs) < len(rows)
    assert bool(packs[0].prefix_length or packs[-1].prefix_length) == (way == "cache")

    expected = gradient(policy, rows, one_pack_per_row(rows))

    assert relative(gradient(policy, rows, packs), expected) <= 5e-6


@pytest.mark.parametrize("name", MODELS)
def test_steps_that_extend_each_other_are_one_sequence(name):
    whole = np.random.default_rng(1).integers(1, 64, 40)
    rows = [whole[: 10 * n] for n in (3, 1, 4, 2)]
    policy = a_policy(name)
    (pack,) = pack_rows(rows, sharing=PrefixSharing(ways={"chain"}, token_cost=1.0), max_tokens=40)

    assert pack.is_chain
    assert len(pack) == 40
    expected = gradient(policy, rows, one_pack_per_row(rows))
    assert relative(gradient(policy, rows, [pack]), expected) <= 5e-6


@pytest.mark.parametrize("most", [sharing_trial.MOST_NUMBERS, 1])
@pytest.mark.parametrize("name", MODELS)
def test_each_model_is_right_in_all_ways(name, most, monkeypatch):
    monkeypatch.setattr(sharing_trial, "MOST_NUMBERS", most)  # of which weights gradients compare
    sharing_trial._found.clear()

    assert find_prefix_sharing(a_policy(name)).ways == {"chain", "cache", "mask"}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_model_that_recomputes_keeps_no_cache(precision):
    policy = a_policy("gemma3 with windows", precision=precision)
    policy.enable_checkpointing()

    assert find_prefix_sharing(policy).ways == {"chain", "mask"}


def test_attention_that_adds_its_mask_takes_a_cache_and_no_tree():
    assert find_prefix_sharing(a_policy("qwen3", attn_implementation="eager")).ways == {
        "chain",
        "cache",
    }


@pytest.mark.parametrize("most", [sharing_trial.MOST_NUMBERS, 1])
def test_a_way_that_gives_another_gradient_is_not_taken(monkeypatch, most):
    monkeypatch.setattr(sharing_trial, "MOST_NUMBERS", most)
    sharing_trial._found.clear()
    monkeypatch.setattr(
        "trinity.trainer.prefix_tree.masks_of", lambda body, mask_P1LL, positions_PL: mask_P1LL
    )  # a tree whose windows are forgotten

    ways = find_prefix_sharing(a_policy("gemma3 with windows")).ways
    sharing_trial._found.clear()

    assert ways == {"chain", "cache"}


@pytest.mark.parametrize("target", ["gate_proj,up_proj", "q_proj,o_proj", "all-linear"])
def test_a_way_that_gives_new_adapters_another_gradient_is_not_taken(monkeypatch, target):
    monkeypatch.setattr(sharing_trial, "MOST_NUMBERS", 1)  # fewer than one adapter has

    def ways():
        sharing_trial._found.clear()
        policy = a_policy("gemma3 with windows")
        policy.module.requires_grad_(False)
        Adapters(policy.module, LoRAConfig(lora_rank=4, target_modules=target))
        found = find_prefix_sharing(policy).ways
        sharing_trial._found.clear()
        return found

    assert ways() == {"chain", "cache", "mask"}
    monkeypatch.setattr(
        "trinity.trainer.prefix_tree.masks_of", lambda body, mask_P1LL, positions_PL: mask_P1LL
    )  # a tree whose windows are forgotten
    assert ways() == {"chain", "cache"}


def test_a_model_that_computes_no_tree_is_named(monkeypatch, caplog):
    sharing_trial._found.clear()
    policy = a_policy("llama")

    def slightly_off(body, inputs):
        states = hidden_states(body, inputs)
        return states if inputs.ends_PL is None and inputs.suffixes_GK is None else states * 1.001

    monkeypatch.setattr("trinity.trainer.policy.hidden_states", slightly_off)
    with caplog.at_level("INFO"):
        ways = find_prefix_sharing(policy).ways

    assert ways == {"chain"}
    assert "model type 'llama' does not compute a tree of tokens as its rows" in caplog.text
    with pytest.raises(NotSupportedYetError, match="'on', but model type 'llama' keeps a state"):
        find_prefix_sharing(policy, is_required=True)
    sharing_trial._found.clear()


@pytest.mark.acceptance
def test_the_trial_of_a_large_model_takes_little_memory():
    sharing_trial._found.clear()
    config = AutoConfig.for_model(
        "qwen2", vocab_size=16384, hidden_size=512, intermediate_size=2048, num_hidden_layers=8,
        num_attention_heads=8, num_key_value_heads=8,
    )  # fmt: skip
    policy = Policy(AutoModelForCausalLM.from_config(config).eval(), precision="float32")
    gradient_bytes = sum(4 * p.numel() for p in policy.body.parameters())  # a micro-batch holds
    before = held("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here

    assert find_prefix_sharing(policy).ways == {"chain", "cache", "mask"}

    assert held("VmHWM") - before <= gradient_bytes / 4
    sharing_trial._found.clear()


def held(field):
    """Return how many bytes of memory this process holds, or held at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def test_a_frozen_model_is_tried_too():
    sharing_trial._found.clear()
    policy = a_policy("gemma3 with windows")
    policy.module.requires_grad_(False)

    with torch.no_grad():
        assert policy.sharing.ways == {"chain", "cache", "mask"}


def test_all_rows_are_there_once_and_a_window_stays_as_it_was():
    policy = a_policy("mistral with a window")
    rows = a_tree()

    packs = pack_rows(rows, sharing=policy.sharing, max_tokens=999)

    assert sorted(rows_of(packs)) == list(range(len(rows)))
    assert policy.module.config.sliding_window == WINDOW
