"""What makes a model fit is named where it does not: each change is tried, offloads are counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from trinity.common.config import Machine, check, load_config, resolve
from trinity.common.config.memory import TrainerMemory, known_shape

GPU = 80 * 10**9
YAML = "project: p\nname: n\nmode: both\nalgorithm: {algorithm_type: grpo, repeat_times: 4}\n"


def machine(num_gpus: int, model: str = "Qwen/Qwen2.5-7B-Instruct", *, size: int = GPU) -> Machine:
    return Machine(num_gpus=num_gpus, has_bf16=True, gpu_bytes=size, model=known_shape(model))


@pytest.fixture
def resolved(tmp_path):
    """Return a function that resolves a small file for a machine."""
    path = tmp_path / "run.yaml"
    path.write_text(YAML)

    def make(found: Machine, *settings: str):
        lengths = ("model.max_prompt_tokens=1024", "model.max_response_tokens=4096")
        return resolve(load_config(path, overrides=(*lengths, *settings)), found)

    return make


def refusals(config, found: Machine) -> list[str]:
    return [f"{p.message} {p.remedy}" for p in check(config, found) if "computed" in p.message]


LONG = ("model.max_prompt_tokens=8192", "model.max_response_tokens=36000")
REFUSED = {
    "by default": (machine(4), ()),
    "in float32, as asked": (
        machine(8),
        ("precision=float32", "gradient_checkpointing=false", "max_token_len_per_gpu=40000"),
    ),
    "without bfloat16": (replace(machine(8), has_bf16=False), ("max_token_len_per_gpu=60000",)),
    "ranks as asked": (machine(8, size=40 * 10**9), ("num_ranks=4",)),
    "ranks that share rows": (
        machine(8),
        ("num_ranks=4", "ulysses_sequence_parallel_size=4", "max_token_len_per_gpu=131072"),
    ),
    "unsharded, as asked": (machine(8), ("trainer_strategy=ddp",)),
    "a reference that is one too many": (machine(3, size=82 * 10**9), ()),
    "states offloaded, and still too large": (machine(2), ("optimizer_offload=true",)),
    "all in float32, unsharded, as asked": (
        machine(8),
        ("precision=float32", "gradient_checkpointing=false", "trainer_strategy=ddp"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_change_that_is_named_makes_it_fit_and_breaks_nothing_else(resolved, case) -> None:
    found, asked = REFUSED[case]
    asked = [*(f"trainer.{one}" for one in asked), *(LONG if "rows" in case else ())]

    def problems(config) -> list[str]:
        errors = [p for p in check(config, found) if p.severity == "error"]
        return [p.message for p in errors if "computed" not in p.message]

    refused = resolved(found, *asked)
    (said,) = refusals(refused, found)
    named = said.partition("cheapest first: ")[2].removesuffix(".").split("; ")

    assert named[0]
    for words in named:
        changes = [one.replace(": ", "=", 1) for one in words.partition(" (")[0].split(" and ")]
        config = resolved(found, *asked, *changes)
        assert refusals(config, found) == []
        assert set(problems(config)) <= set(problems(refused))


def test_what_is_on_already_or_needs_no_other_change_is_not_named(resolved) -> None:
    asked, small = ("trainer.num_ranks=4",), machine(8, size=40 * 10**9)
    (said,) = refusals(resolved(small, *asked), small)

    assert "gradient_checkpointing" not in said
    assert "engine_num" not in said


def test_a_model_that_no_key_makes_fit_is_told_how_many_gpus_do(resolved) -> None:
    """Adapters leave 15 GB of weights, and the engine has 15 and a cache of 3.

    16 ranks: 6.7 GB at rest, 6.2 gathered, 2.1 of layers, 3.2 of gradients and a layer; 25.8 can
    be used. 8 ranks have 6.7 more at rest, and twice the gradients.
    """
    small, large = (machine(num, size=30 * 10**9) for num in (1, 17))
    (said,) = refusals(resolved(small), small)

    assert "on 1 GPU (computed)" in said
    assert said.endswith("Use trainer.num_ranks: 16 (more GPUs), or a smaller model.")
    engine = "explorer.rollout_model.engine_num=1"
    assert refusals(resolved(large, engine, "trainer.num_ranks=16"), large) == []
    assert refusals(resolved(large, engine, "trainer.num_ranks=8"), large)


@pytest.mark.parametrize(("nodes", "size"), [(1, 4), (8, 2)])
def test_rows_too_long_for_a_rank_are_shared_between_ranks(nodes, size, resolved) -> None:
    """131,072 tokens: of 4 ranks each has room for 47,340, of 32 for 92,744; 28 heads."""
    found = replace(machine(8), model_num_heads=28)
    long = ("model.max_response_tokens=130048", f"cluster.node_num={nodes}")
    (said,) = refusals(resolved(found, *long), found)

    key = "trainer.ulysses_sequence_parallel_size"
    assert f"cheapest first: {key}: {size} (rows are shared)" in said
    assert refusals(resolved(found, *long, f"{key}={size}"), found) == []
    assert refusals(resolved(found, *long, f"{key}={size // 2}"), found)


def test_rows_too_long_for_any_number_of_gpus_are_told_what_fits(resolved) -> None:
    """A million tokens, of which four ranks have a quarter each: 100 GB of layers' inputs."""
    found = replace(machine(8), model_num_heads=28)
    (said,) = refusals(resolved(found, "model.max_response_tokens=998976"), found)
    row = (f"model.max_response_tokens={47340 - 1024}",)

    assert said.endswith("Use rows of at most 47,340 tokens, or a smaller model.")
    assert refusals(resolved(found, *row), found) == []


def test_without_a_kl_term_the_reference_is_not_held(resolved) -> None:
    """On 2 ranks of 7B a reference is 7.6 GB of 78; of 82 GB 73.6 can be used."""
    found = machine(3, size=82 * 10**9)
    (said,) = refusals(resolved(found), found)

    assert "algorithm.kl_loss_fn: none (no KL term)" in said


@pytest.mark.parametrize("key", ["param_offload", "optimizer_offload", "offload_policy"])
def test_an_offload_that_is_not_enough_is_refused(key, resolved) -> None:
    """One GPU, 7B: 4 bytes of weights and 4 of gradients a parameter are 61 GB beside an engine."""
    (said,) = refusals(resolved(machine(1), f"trainer.{key}=true"), machine(1))

    assert "on 1 GPU (computed)" in said
    assert f"trainer.{key}" not in said


def test_an_offload_that_is_enough_is_planned(resolved) -> None:
    """7B on 2 ranks: 81.5 GB; offloaded 4 R gathered, 8 P/28 of a layer and activations."""
    found = machine(3)
    config = resolved(found, "trainer.offload_policy=true")

    assert refusals(config, found) == []
    assert "(fsdp2, bfloat16, recomputing, offload_policy): 0 MB at rest" in "".join(config.notes)


def test_an_engine_that_shares_a_gpu_in_turns_needs_what_a_trainer_leaves_at_rest(resolved) -> None:
    """4 ranks of 7B: 26.7 of 44.2 GB at rest; an engine with a tenth of the GPU has 20.2."""
    found = machine(4, size=50 * 10**9)
    config = resolved(found, "mode=colocate", "explorer.rollout_model.engine_type=transformers")

    said = [str(one) for one in check(config, found) if "leaves 0.35 of it" in one.message]

    assert said
    assert said[0].endswith("Use mode: both.")


def test_what_is_offloaded_is_on_the_gpu_only_where_it_is_used() -> None:
    """At rest 8 P of Adam's states, 4 P of weights, 2 P of a reference; in a step 4 P of gradients.

    Of 8 tokens the update decides, of a million the passes, in which the states are away.
    """
    plain = TrainerMemory(
        shape=known_shape("qwen2.5-7b"), precision="bfloat16", recomputes=True, has_reference=True
    )
    p = plain.shape.parameters
    states, weights = replace(plain, optimizer_offload=True), replace(plain, param_offload=True)
    ranks = replace(plain, strategy="fsdp2", num_ranks=4)

    assert (plain.at_rest, states.at_rest, weights.at_rest) == (14 * p, 6 * p, 8 * p)
    assert replace(states, param_offload=True).at_rest == 0
    assert weights.peak(8) == plain.peak(8)
    assert states.peak(8) == 18 * p
    assert states.peak(10**6) == plain.peak(10**6) - 8 * p
    assert replace(plain, offload_policy=True).at_rest == plain.at_rest  # of sharded weights alone
    assert replace(ranks, param_offload=True, optimizer_offload=True).at_rest == ranks.at_rest


def test_a_sharded_model_that_is_offloaded_leaves_what_a_pass_gathers() -> None:
    """8 tokens: 4 R and 8 P/L gathered in bfloat16, 4 T L h of layers' inputs, the logits."""
    shape = known_shape("qwen2.5-7b")
    plan = TrainerMemory(
        shape=shape, strategy="fsdp2", num_ranks=4, precision="bfloat16", recomputes=True,
        has_reference=True, offload_policy=True,
    )  # fmt: skip
    gathered = 4 * shape.root + 8 * (shape.parameters - shape.root) / 28
    lora = replace(plan, adapters=1_000_000)

    assert plan.at_rest == 0
    assert plan.peak(8) == pytest.approx(gathered + 8 * 28 * 4 * 3584 + 14 * 8 * 152064)
    assert lora.at_rest == 12e6  # adapters are whole on each rank, with their states


def test_states_of_policy_and_critic_are_there_one_after_the_other() -> None:
    """The policy's update: 18 P of it, and the critic's 4 bytes of weights."""
    shape = known_shape("qwen2.5-7b")
    plan = TrainerMemory(
        shape=shape, critic=shape, precision="bfloat16", recomputes=True, has_reference=True,
        optimizer_offload=True,
    )  # fmt: skip
    body = 7_615_616_512 - 152_064 * 3_584

    assert plan.at_rest == 6 * shape.parameters + 4 * body
    assert plan.peak(8) == 18 * shape.parameters + 4 * body


def test_a_critic_too_large_is_told_how_large_it_may_be(resolved) -> None:
    """3B, 12 + 12 bytes of 3.09 billion, 2 of a reference, 4 of gradients: 92.6 GB of 71.8.

    A critic of nine of 36 layers has a billion: 18 x 3.09 + 12 x 1.0 = 67.6 GB.
    """
    found = machine(8, "qwen2.5-3b")
    ppo = ("algorithm.algorithm_type=ppo", "algorithm.repeat_times=1")
    model = "model.model_path=Qwen/Qwen2.5-3B"
    (said,) = refusals(resolved(found, *ppo, model), found)
    smaller = resolved(found, *ppo, model, "model.critic_model_path=Qwen/Qwen2.5-0.5B")

    assert "model.critic_model_path: at most 1.0 billion parameters (a smaller critic)" in said
    assert refusals(smaller, found) == []
