"""What several trainer processes cannot do is said before any of them starts."""

from __future__ import annotations

import pytest
from trinity.common.config import check, load_config, resolve
from trinity.common.config.machine import Machine
from trinity.common.config.problem import listed


@pytest.fixture
def said(a_run, cpu, builtin_only):
    """Return what the check of a run with these settings says."""

    def checked(*settings, machine=cpu):
        config = resolve(load_config(a_run(), overrides=list(settings)), machine)
        return "\n".join(listed(check(config, machine)))

    return checked


def test_several_ranks_of_our_own_trainer_are_fine(said) -> None:
    assert "trainer." not in said("trainer.num_ranks=2")
    assert "trainer." not in said("trainer.num_ranks=2", "trainer.trainer_strategy=fsdp")


def test_megatron_is_refused(said) -> None:
    assert (
        "trainer.trainer_strategy: 'megatron' is not supported yet. Leave it out, or at 'ddp'."
        in (said("trainer.trainer_strategy=megatron"))
    )


TWO_SHARE = ("trainer.num_ranks=2", "trainer.trainer_strategy=fsdp2")


@pytest.mark.parametrize("name", ["param_offload", "optimizer_offload"])
def test_what_takes_whole_models_away_is_refused_where_ranks_share_the_weights(said, name) -> None:
    message = (
        f"trainer.{name}: needs an unsharded model, but trainer_strategy is fsdp2. Leave it out, "
        "and set trainer.offload_policy: true."
    )

    assert message in said(*TWO_SHARE, f"trainer.{name}=true")
    assert "trainer." not in said("trainer.num_ranks=2", f"trainer.{name}=true")
    assert message not in said(f"trainer.{name}=true")


def test_the_way_of_fsdp2_is_refused_with_several_whole_models(said) -> None:
    message = (
        "trainer.offload_policy: needs trainer_strategy fsdp2, but it is ddp. Set "
        "trainer.trainer_strategy: fsdp2, or leave it out and set trainer.param_offload and "
        "trainer.optimizer_offload: true."
    )

    assert message in said("trainer.num_ranks=2", "trainer.offload_policy=true")
    assert "trainer." not in said(*TWO_SHARE, "trainer.offload_policy=true")


@pytest.mark.parametrize("size", [3, 0])
def test_copies_of_the_weights_have_as_many_ranks_each(said, size) -> None:
    """HSDP: four ranks are one copy, or two copies of two ranks."""
    four = ("trainer.num_ranks=4", "trainer.trainer_strategy=fsdp2")
    message = f"trainer.fsdp_size: is {size}, which does not divide trainer.num_ranks 4."

    assert message in said(*four, f"trainer.fsdp_size={size}")
    assert "fsdp_size" not in said(*four, "trainer.fsdp_size=2")
    assert "fsdp_size" not in said(*four)


def test_adapters_may_stand_beside_weights_that_are_sharded(said) -> None:
    lora = "model.lora_configs=[{name: a, lora_rank: 4}]"

    assert "trainer.trainer_strategy" not in said(*TWO_SHARE, lora)


BOTH = {"param_offload", "optimizer_offload"}
FSDP2 = "trainer.trainer_strategy=fsdp2"


@pytest.mark.parametrize(
    ("num_gpus", "settings", "unread"),
    [
        (0, [], {*BOTH, "offload_policy"}),
        (0, [*TWO_SHARE], {*BOTH, "offload_policy"}),
        (1, [], {"offload_policy"}),
        (1, [FSDP2], {"offload_policy"}),
        (4, [], {"offload_policy"}),
        (4, ["trainer.num_ranks=1", FSDP2], {"offload_policy"}),
        (4, [*TWO_SHARE], BOTH),
    ],
)
def test_offloading_that_nothing_in_the_run_reads_is_noted(
    a_run, builtin_only, num_gpus, settings, unread
) -> None:
    names = ("param_offload", "optimizer_offload", "grad_offload", "offload_policy")
    loaded = load_config(
        a_run(), overrides=[*(f"trainer.{name}=true" for name in names), *settings]
    )

    config = resolve(loaded, Machine(num_gpus=num_gpus))

    noted = [note for note in config.notes if "_offload" in note or "_policy" in note]
    assert {name for name in names if f"trainer.{name}" in " ".join(noted)} == {
        *unread,
        "grad_offload",
    }


def test_where_a_run_over_ray_has_a_rank_on_each_gpu_it_is_said_which_run_reads_what(
    a_run, builtin_only
) -> None:
    names = [*sorted(BOTH), "offload_policy"]
    loaded = load_config(a_run(), overrides=[*(f"trainer.{name}=true" for name in names), FSDP2])

    config = resolve(loaded, Machine(num_gpus=4))

    assert [note for note in config.notes if note.startswith("read only")] == [
        "read only with --local, where the trainer is one rank: trainer.param_offload, "
        "trainer.optimizer_offload",
        "read only over Ray, where ranks on several GPUs share the weights (fsdp2): "
        "trainer.offload_policy",
    ]
    assert not any("_offload" in note for note in config.notes if note.startswith("not used"))


def test_what_is_not_spread_is_refused_with_fsdp2_and_taken_with_ddp(said, gpus) -> None:
    critic = ("algorithm.algorithm_type=ppo", "trainer.trainer_strategy=fsdp2")
    message = "trainer.trainer_strategy: is fsdp2, which does not shard a critic. Use ddp."

    assert message in said(*critic, "trainer.num_ranks=2")
    assert message in said(*critic, machine=gpus)  # where there is a rank on each GPU left
    assert message not in said(*critic)
    assert message not in said("algorithm.algorithm_type=ppo", "trainer.num_ranks=2")


ULYSSES = "trainer.ulysses_sequence_parallel_size"


def test_ranks_share_sequences_where_their_number_and_the_heads_divide(said) -> None:
    machine = Machine(num_gpus=0, model_num_heads=6)

    assert "trainer." not in said("trainer.num_ranks=4", f"{ULYSSES}=2", machine=machine)
    assert f"{ULYSSES}: is 4, which does not divide the model's 6 attention heads." in said(
        "trainer.num_ranks=4", f"{ULYSSES}=4", machine=machine
    )
    assert (
        f"{ULYSSES}: is 2, which does not divide trainer.num_ranks 3. Use one that does."
        in said("trainer.num_ranks=3", f"{ULYSSES}=2")
    )


@pytest.mark.parametrize(
    ("beside", "name"),
    [
        ("algorithm.algorithm_type=ppo", "a critic"),
        ("model.lora_configs=[{name: a, lora_rank: 4}]", "LoRA adapters"),
    ],
)
def test_what_is_trained_beside_the_model_shares_no_sequences(said, beside, name) -> None:
    message = f"{ULYSSES}: is 2, but {name} cannot use sequence parallelism. Set it to 1."

    assert message in said("trainer.num_ranks=2", f"{ULYSSES}=2", beside)


def test_ranks_that_share_rows_take_as_many_times_the_tokens(said) -> None:
    """700 + 500 tokens of a row on 2 ranks are 600 of each."""
    lengths = ("model.max_prompt_tokens=700", "model.max_response_tokens=500")
    budget = "trainer.max_token_len_per_gpu"
    shared = ("trainer.num_ranks=2", f"{ULYSSES}=2", *lengths)

    assert budget not in said(*shared, f"{budget}=600")
    assert "Use 600 or more, or shorter responses." in said(*shared, f"{budget}=249")
