"""What a GPU holds is computed from the model's shape, and decides what the machine's defaults are.

The numbers are those of a device that counts its bytes (docs/explanation/gpus.md).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from trinity.common.config import Machine, check, load_config, memory, resolve
from trinity.common.config.memory import (
    TrainerMemory,
    adapter_parameters,
    cache_tokens,
    engine_bytes,
    known_shape,
    usable,
)
from trinity.common.config.parts import NamedParts
from trinity.extend import ComponentSpec, get_manager

FILES = sorted((Path(__file__).parent / "data" / "trinity_rft").glob("*.yaml"))
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


@pytest.fixture
def _spreading(monkeypatch):
    """Let each engine share a model among GPUs, which that of the core does not."""
    monkeypatch.setattr(NamedParts, "spreads", lambda parts, engine: True)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen2.5-0.5B", 0.494),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1.544),
        ("qwen2.5-7b", 7.616),
        ("/models/Qwen2.5-32B-Instruct", 32.764),
        ("Qwen/Qwen3-8B", 8.191),
    ],
)
def test_the_parameters_of_published_models_are_counted_from_their_shape(name, billions) -> None:
    shape = known_shape(name)

    assert shape is not None
    assert shape.parameters / 1e9 == pytest.approx(billions, abs=5e-4)


def test_a_model_of_another_name_or_shape_is_not_planned() -> None:
    assert known_shape("Qwen/Qwen3-30B-A3B-Instruct-2507") is None
    assert known_shape("qwen2.5-7b2") is None


SIZES = (
    *("hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
)
EXPERTS = ("moe_intermediate_size", "num_experts_per_tok")
QWEN3_30B_A3B = {
    **dict(zip(SIZES, (2048, 48, 151936, 6144, 32, 4, 128), strict=True)),
    **dict(zip(EXPERTS, (768, 8), strict=True)),
    **{"num_experts": 128, "decoder_sparse_step": 1, "mlp_only_layers": []},
}
QWEN1_5_MOE = {
    **dict(zip(SIZES, (2048, 24, 151936, 5632, 16, 16, None), strict=True)),
    **dict(zip(EXPERTS, (1408, 4), strict=True)),
    **{"num_experts": 60, "shared_expert_intermediate_size": 5632, "model_type": "qwen2_moe"},
}
GLM_4_5_AIR = {
    **dict(zip(SIZES, (4096, 46, 151552, 10944, 96, 8, 128), strict=True)),
    **dict(zip(EXPERTS, (1408, 8), strict=True)),
    **{"n_routed_experts": 128, "n_shared_experts": 1, "first_k_dense_replace": 1},
}
MIXTRAL = {
    **dict(zip(SIZES, (4096, 32, 32000, 14336, 32, 8, None), strict=True)),
    **{"num_local_experts": 8, "num_experts_per_tok": 2},
}


@pytest.mark.parametrize(
    ("settings", "billions", "active", "mlp"),
    [  # published: 30.5, 14.3, 106 and 46.7; of which a token uses, with the embedding, 3.3, 2.7,
        # 12 (13.4 with embedding and choices) and 12.9
        (QWEN3_30B_A3B, 30.532, 3.042, 8 * 768),
        (QWEN1_5_MOE, 14.316, 2.378, 4 * 1408 + 5632),
        (GLM_4_5_AIR, 106.852, 12.803, 9 * 1408),
        (MIXTRAL, 46.703, 12.749, 2 * 14336),
    ],
)
def test_a_mixture_has_all_of_its_experts_and_a_token_goes_to_some(
    settings, billions, active, mlp
) -> None:
    """GLM-4.5-Air: 46 x (2 x 4096 x (12288 + 1024) + 8192) of attention and norms, 1241.5 million
    of embedding and output layer, 45 x 128 x 4096 by which experts are chosen; MLPs have
    45 x 129 x 1408 + 10944 hidden numbers, 12288 parameters each: 106,851,586,048.
    """
    shape = memory.ModelShape.of(settings)

    assert shape.parameters / 1e9 == pytest.approx(billions, abs=5e-4)
    assert shape.active / 1e9 == pytest.approx(active, abs=5e-4)
    assert shape.mlp == mlp


def test_a_model_whose_type_ties_its_embeddings_need_not_say_so() -> None:
    """Gemma 2 2B as published, 2.614 billion: 256,000 x 2,304 of embedding and output layer."""
    gemma = dict(zip(SIZES, (2304, 26, 256000, 9216, 8, 4, 256), strict=True))
    by_type, said, other = (
        memory.ModelShape.of(gemma | more).parameters
        for more in (
            {"model_type": "gemma2"},
            {"model_type": "gemma2", "tie_word_embeddings": False},
            {"model_type": "llama"},
        )
    )

    assert by_type / 1e9 == pytest.approx(2.614, abs=5e-4)
    assert said == other == by_type + 256_000 * 2304


@pytest.mark.parametrize(
    "other",
    [
        {"kv_lora_rank": 512},  # latent attention, as DeepSeek-V3 and Kimi-K2 have it
        {"n_routed_experts": None},
        {"num_experts_per_tok": None},
        {"moe_layer_freq": [0, 1, 1]},
        {"interleave_moe_layer_step": 2},
        {"n_shared_experts": -1},
    ],
)
def test_a_mixture_whose_experts_or_attention_are_not_counted_is_not_planned(other) -> None:
    assert memory.ModelShape.of(GLM_4_5_AIR | other) is None


def test_a_model_of_7b_takes_what_follows_from_the_rehearsal() -> None:
    shape = known_shape("qwen2.5-7b")
    plain = TrainerMemory(shape=shape, has_reference=True)
    sharded = replace(plain, strategy="fsdp2", num_ranks=4, precision="bfloat16", recomputes=True)

    assert plain.at_rest / 1e9 == pytest.approx(122, abs=0.5)  # 12 P, and 4 P of the reference
    assert plain.peak(10240) / 1e9 == pytest.approx(276, rel=0.02)
    assert sharded.peak(10240) / 1e9 == pytest.approx(47, rel=0.05)


@pytest.mark.parametrize("recomputes", [True, False])
@pytest.mark.parametrize("room", [60e9, 75e9, 500e9])
def test_the_largest_micro_batch_is_the_last_that_fits(room, recomputes) -> None:
    plan = TrainerMemory(
        shape=known_shape("qwen2.5-1.5b"), precision="bfloat16", recomputes=recomputes
    )

    most = plan.most_tokens(room)

    assert plan.peak(most) <= room < plan.peak(most + 1)


def test_a_model_whose_weights_alone_are_too_large_has_no_micro_batch() -> None:
    assert TrainerMemory(shape=known_shape("qwen2.5-32b")).most_tokens(usable(GPU)) == 0


def test_an_engines_weights_and_cache_are_spread_over_its_gpus() -> None:
    shape = known_shape("qwen2.5-7b")

    assert engine_bytes(shape, dtype="bfloat16", width=2) == shape.parameters
    assert cache_tokens(shape, 1e9, dtype="bfloat16") == int(1e9 / (2 * 28 * 4 * 128 * 2))
    assert cache_tokens(shape, -1e9, dtype="bfloat16") == 0


def test_a_7b_model_on_eight_gpus_fits_by_defaults_alone(resolved) -> None:
    config = resolved(machine(8))

    assert config.explorer.rollout_model.engine_num == 4
    assert config.trainer.trainer_strategy == "fsdp2"
    assert config.trainer.precision == config.explorer.rollout_model.dtype == "bfloat16"
    assert config.trainer.gradient_checkpointing
    assert config.synchronizer.sync_method == "nccl"
    assert "121.8 GB" in config.origins["trainer.trainer_strategy"]
    assert any("at the peak of a step" in note for note in config.notes)
    assert refusals(config, machine(8)) == []


def test_ranks_that_share_a_row_need_room_for_their_part_of_it(resolved) -> None:
    """131,072 tokens on 4 ranks: 32,768 each; 47,340 fit, and two rows would be 65,536."""
    lengths = ("model.max_prompt_tokens=8192", "model.max_response_tokens=122880")
    ranks = ("trainer.num_ranks=4", "trainer.ulysses_sequence_parallel_size=4")
    config = resolved(machine(8), *ranks, *lengths)
    asked = resolved(machine(8), *ranks, *lengths, "trainer.max_token_len_per_gpu=60000")
    (said,) = refusals(asked, machine(8))

    assert config.trainer.max_token_len_per_gpu == 47340
    assert refusals(config, machine(8)) == []
    assert "trainer.max_token_len_per_gpu: 47340 (more micro-batches)" in said


def test_a_small_model_is_neither_sharded_nor_recomputed(resolved) -> None:
    config = resolved(machine(8, "qwen2.5-0.5b"))

    assert config.trainer.trainer_strategy == "ddp"
    assert not config.trainer.gradient_checkpointing


def test_what_the_file_says_wins_over_the_machine(resolved) -> None:
    asked = ("trainer.precision=float32", "explorer.rollout_model.engine_num=2")
    config = resolved(machine(8), *asked, "trainer.gradient_checkpointing=false")

    assert config.trainer.precision == "float32"
    assert config.explorer.rollout_model.engine_num == 2
    assert not config.trainer.gradient_checkpointing


def test_a_model_that_cannot_fit_is_refused_with_what_makes_it_fit(resolved) -> None:
    (said,) = refusals(resolved(machine(4)), machine(4))

    assert "7.6 billion parameters: a train step needs 82 GB on each of 2 GPUs" in said
    assert "explorer.rollout_model.engine_num: 1 (slower rollouts)" in said


def test_a_micro_batch_is_cut_to_what_fits(resolved) -> None:
    config = resolved(machine(1, "qwen2.5-1.5b", size=42_600_000_000))

    tokens = config.trainer.max_token_len_per_gpu
    assert 5120 <= tokens < 10240
    assert config.origins["trainer.max_token_len_per_gpu"] == "what fits into a GPU"
    assert refusals(config, machine(1, "qwen2.5-1.5b", size=42_600_000_000)) == []


def test_one_gpu_is_shared_by_trainer_and_engine(resolved) -> None:
    config = resolved(machine(1, "qwen2.5-0.5b"))

    assert config.explorer.rollout_model.engine_num == 1
    assert config.synchronizer.sync_method == "ipc"
    assert config.explorer.rollout_model.gpu_memory_utilization == 0.55
    assert [p for p in check(config, machine(1, "qwen2.5-0.5b")) if "GPU" in p.message] == []


def test_without_gpus_nothing_is_planned(resolved) -> None:
    config = resolved(Machine(model=known_shape("qwen2.5-7b")))

    assert config.trainer.precision == "float32"
    assert config.synchronizer.sync_method == "memory"
    assert not any("GPU" in note for note in config.notes)


@pytest.mark.parametrize("file", [f for f in FILES if "7B" in f.read_text()], ids=lambda f: f.stem)
def test_each_published_file_of_7b_fits_eight_gpus_or_says_what_is_missing(file) -> None:
    text = file.read_text()
    name = "qwen3-8b" if "Qwen3-8B" in text else "qwen2.5-7b"
    found = machine(8, name)
    env = {
        "TRINITY_CHECKPOINT_ROOT_DIR": "ROOT",
        "TRINITY_MODEL_PATH": name,
        "TRINITY_TASKSET_PATH": "DATA",
    }
    config = resolve(load_config(file, env=env), found)

    for said in refusals(config, found):
        assert "What makes it fit" in said


@pytest.mark.parametrize(
    "wrong", [{"num_key_value_heads": "abc"}, {"head_dim": -64}, {"hidden_size": True}, {"x": []}]
)
def test_a_config_of_nonsense_is_not_planned(wrong) -> None:
    good = json.loads((Path(memory.__file__).with_name("known_models.json")).read_text())
    shape = memory.ModelShape.of(good["qwen2.5-7b"] | wrong)

    assert (shape is None) == ("x" not in wrong)


@pytest.mark.usefixtures("_spreading")
def test_an_engine_whose_weights_do_not_fit_is_refused(resolved) -> None:
    found = machine(8, "qwen2.5-32b", size=60 * 10**9)
    config = resolved(found, "mode=explore")

    (said,) = refusals(config, found)

    assert "is 1: an engine holds 66 GB of weights on each of its GPUs" in said
    assert said.endswith("Use 2.")


def test_an_engine_that_uses_one_gpu_is_not_told_to_use_more_of_them(resolved) -> None:
    found = machine(8, "qwen2.5-32b", size=60 * 10**9)
    config = resolved(found, "mode=explore")

    (said,) = refusals(config, found)

    # the one of a plugin, if it is installed
    assert re.search(r"Use 2 and (engine_type: vllm|an engine_type that [^.]*)\.$", said)


@pytest.mark.usefixtures("_spreading")
@pytest.mark.parametrize(
    ("settings", "size", "remedy"),
    [
        (("explorer.rollout_model.engine_num=1", "trainer.num_ranks=4"), 40, "Use 4."),
        (("explorer.rollout_model.engine_num=1", "trainer.num_ranks=6"), 40, "Use larger GPUs, or"),
        (("mode=explore", "cluster.node_num=2", "cluster.gpu_per_node=4"), 40, "Use 4."),
        (
            ("mode=explore", "cluster.node_num=2", "cluster.gpu_per_node=4"),
            20,
            "Use larger GPUs, or",
        ),
    ],
)
def test_an_engine_is_told_only_a_width_that_its_machines_have_beside_the_trainer(
    settings, size, remedy, resolved
) -> None:
    """66 GB in bfloat16: four GPUs of 40 GB on one machine, or eight of 20 GB, which none has."""
    found = machine(8, "qwen2.5-32b", size=size * 10**9)
    said = [one for one in refusals(resolved(found, *settings), found) if "an engine holds" in one]

    assert len(said) == 1
    assert remedy in said[0]


@pytest.mark.usefixtures("_spreading")
@pytest.mark.parametrize(
    ("engines", "remedy"), [(2, "Use 4."), (4, "Use larger GPUs, or a smaller model.")]
)
def test_the_engines_that_are_asked_for_share_the_gpus(engines, remedy, resolved) -> None:
    """66 GB over four of 40 GB each: eight GPUs have room for two such engines."""
    found = machine(8, "qwen2.5-32b", size=40 * 10**9)
    config = resolved(found, "mode=explore", f"explorer.rollout_model.engine_num={engines}")

    assert refusals(config, found)[0].endswith(remedy)


@pytest.mark.usefixtures("_spreading")
def test_an_engine_is_spread_over_a_number_of_gpus_that_divides_the_heads(resolved) -> None:
    """66 GB in bfloat16, 0.8 of 36 GB each: three GPUs would do, but 40 heads take 2, 4 or 8."""
    eight = replace(machine(8, "qwen2.5-32b", size=40 * 10**9), model_num_heads=40)
    two = replace(eight, num_gpus=2)
    float32 = "explorer.rollout_model.dtype=float32"

    assert refusals(resolved(eight, "mode=explore"), eight)[0].endswith("Use 4.")
    assert refusals(resolved(eight, "mode=explore", float32), eight)[0].endswith(
        "Use 8 or dtype bfloat16."
    )
    assert refusals(resolved(two, "mode=explore"), two)[0].endswith(
        "Use larger GPUs, or a smaller model."
    )


def test_a_part_of_a_shared_gpu_that_the_trainer_needs_is_refused(resolved) -> None:
    found = machine(1, "qwen2.5-0.5b")
    config = resolved(found, "explorer.rollout_model.gpu_memory_utilization=0.9")

    assert any("the trainer uses the same GPU" in p.message for p in check(config, found))


def test_an_engine_for_gpus_without_its_package_is_no_default(our_engine) -> None:
    assert NamedParts(our_engine(missing="it is not installed")).default_engine(num_gpus=1) == (
        "transformers"
    )
    assert NamedParts(our_engine(missing="")).default_engine(num_gpus=1) == "for_gpus"


@pytest.fixture
def our_engine(monkeypatch):
    """Return a function that adds a plugin with an engine for GPUs, with or without its package."""
    from trinity.extend import assets

    class Manager:
        def __init__(self, missing: str) -> None:
            self._real, self.missing = get_manager(), missing

        def components(self, kind: str):
            made = next(c for c in self._real.components(kind) if c.spec.default_for == "cpu")
            spec = ComponentSpec(made.spec.target, default_for="gpu")
            return [replace(made, name="for_gpus", spec=spec), made]

        @property
        def records(self):
            return self._real.records

    def make(*, missing: str) -> Manager:
        monkeypatch.setattr(assets, "assets_of", lambda record, manager: ["vllm"])
        monkeypatch.setattr(assets, "missing_part", lambda asset, *, record: missing)
        return Manager(missing)

    return make


def test_copies_of_the_weights_need_as_much_as_their_own_ranks_share() -> None:
    """HSDP: of eight ranks four share a copy, so each holds a quarter."""
    shape = known_shape("Qwen2.5-7B")
    four = TrainerMemory(shape=shape, strategy="fsdp2", num_ranks=4)
    eight = TrainerMemory(shape=shape, strategy="fsdp2", num_ranks=8, fsdp_size=4)

    assert eight.at_rest == four.at_rest == 12 * shape.parameters / 4
    assert eight.peak(4096) == four.peak(4096)


def test_adapters_leave_the_model_frozen_in_the_type_it_computes_in() -> None:
    """Qwen2.5-7B: 28 layers, 3,584 wide, MLP 18,944, keys 512; rank 32 in seven matrices.

    q and o 2 x 7168, k and v 2 x 4096, the MLP 3 x 22528: 90,112 a rank and layer, 80.7 million.
    """
    shape = known_shape("Qwen2.5-7B")
    count = adapter_parameters(shape, 32)
    lora = TrainerMemory(shape=shape, precision="bfloat16", recomputes=True, adapters=count)
    beside = replace(lora, has_reference=True)
    sharded = replace(lora, strategy="fsdp2", num_ranks=4)

    assert count == 28 * 32 * (2 * 7168 + 2 * 4096 + 3 * 22528) == 80740352
    assert lora.at_rest == 2 * shape.parameters + 12 * count
    assert beside.at_rest == lora.at_rest  # the frozen model is the reference, too
    assert replace(beside, adapters=0).at_rest == (12 + 2) * shape.parameters
    assert sharded.at_rest == 2 * shape.parameters / 4 + 12 * count
    assert lora.state == sharded.state == 2 * shape.parameters + 16 * count
    assert replace(lora, adapters=0).state == 16 * shape.parameters


def test_the_peak_with_adapters_has_their_gradients_and_no_others() -> None:
    """8 tokens: nothing but what is there whatever the micro-batch is."""
    shape = known_shape("Qwen2.5-7B")
    lora = TrainerMemory(shape=shape, precision="bfloat16", adapters=1_000_000)
    sharded = replace(lora, strategy="fsdp2", num_ranks=4)
    tokens, scored = 8, 8
    activations = 28 * tokens * (32 * 3584 + 16 * 18944) * 0.62
    logits = 14 * scored * 152064
    layers = shape.parameters - shape.root

    assert lora.peak(tokens) - lora.at_rest == pytest.approx(4e6 + activations + logits)
    gathered = 2 * (shape.root + 2 * layers / 28)
    expected = gathered + activations + max(logits, 4e6)
    assert sharded.peak(tokens) - sharded.at_rest == pytest.approx(expected)


def test_a_model_too_large_for_one_gpu_is_told_of_adapters(resolved) -> None:
    """7B in float32 states needs 144 GB, as adapters 27 GB beside the engine; recomputing is on."""
    one = machine(1)
    (refusal,) = refusals(resolved(one, "model.model_path=Qwen/Qwen2.5-7B-Instruct"), one)

    assert refusal.endswith("model.lora_configs: [{lora_rank: 32}] (adapters alone are trained).")


@pytest.mark.parametrize(
    ("settings", "gigabytes"),
    [
        (("kl_loss_fn=none",), 91.4),
        (("kl_loss_fn=k2", "kl_loss_fn_args={kl_coef: 0.0}"), 91.4),
        (("kl_loss_fn=k2",), 106.6),
        (("advantage_fn=grpo_verl", "kl_loss_fn=none", "kl_penalty_fn=k2"), 106.6),
        (("algorithm_type=dpo", "kl_loss_fn=none"), 106.6),  # its loss reads it
        (("algorithm_type=sft",), 91.4),
    ],
)
def test_a_reference_model_that_is_not_read_takes_no_memory(resolved, settings, gigabytes) -> None:
    """7B has 12 bytes for each of 7.6 billion parameters, and a frozen one in bfloat16 2."""
    found = machine(1, size=141 * 10**9)
    config = resolved(found, *(f"algorithm.{one}" for one in settings))

    assert f"{gigabytes} GB at rest" in "".join(config.notes)


@pytest.mark.parametrize("kl_loss_fn", ["none", "k2"])
def test_beside_adapters_the_reference_model_takes_no_memory(resolved, kl_loss_fn) -> None:
    """7B frozen in bfloat16 is 15.2 GB; 40 million parameters of adapters have 12 bytes each."""
    lora = "model.lora_configs=[{lora_rank: 16}]"
    found = machine(1, size=141 * 10**9)
    config = resolved(found, lora, f"algorithm.kl_loss_fn={kl_loss_fn}")

    assert "15.7 GB at rest" in "".join(config.notes)


def test_the_defaults_of_eight_gpus_follow_the_adapters(resolved) -> None:
    """7B with adapters fits four times into 80 GB and is not sharded; 32B is."""
    lora = "model.lora_configs=[{name: a, lora_rank: 32}]"
    small, large = (
        resolved(machine(8, name), lora, f"model.model_path={name}")
        for name in ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-32B-Instruct")
    )

    assert small.trainer.trainer_strategy == "ddp"
    assert large.trainer.trainer_strategy == "fsdp2"
    assert any("LoRA with 80.7 million parameters" in note for note in small.notes)


def test_a_critic_is_a_model_of_its_own_without_an_output_layer() -> None:
    """Qwen2.5-7B: 7,615,616,512 parameters less 152,064 x 3,584 of the output layer.

    Its step has 4 bytes of gradients and 2 of rounded weights for each, and no logits; the
    policy's step has more, unless adapters alone are trained in it.
    """
    shape = known_shape("qwen2.5-7b")
    plain = TrainerMemory(shape=shape, precision="bfloat16", has_reference=True)
    both = replace(plain, critic=shape)
    lora = replace(both, adapters=1_000_000)
    body = 7_615_616_512 - 152_064 * 3_584
    layers = 28 * 8 * (32 * 3584 + 16 * 18944) * 0.62  # of 8 tokens

    assert both.at_rest == plain.at_rest + 12 * body
    assert both.peak(4096) == plain.peak(4096) + 12 * body
    assert lora.peak(8) == pytest.approx(lora.at_rest + 6 * body + layers)
    assert replace(both, critic=known_shape("qwen2.5-0.5b")).at_rest == (
        plain.at_rest + 12 * 494_032_768  # whose output layer is its embedding
    )


def test_a_run_with_a_critic_is_planned_and_not_sharded(resolved) -> None:
    """1.5B: 12 + 12 bytes of 1.54 billion and 2 of a reference; 7B fits no GPU of 80 GB."""
    ppo = ("algorithm.algorithm_type=ppo", "algorithm.repeat_times=1")
    small = resolved(machine(8, "qwen2.5-1.5b"), *ppo)
    (said,) = refusals(resolved(machine(8), *ppo), machine(8))

    assert small.trainer.trainer_strategy == "ddp"
    assert any("(ddp, bfloat16, recomputing, with a critic)" in note for note in small.notes)
    assert refusals(small, machine(8, "qwen2.5-1.5b")) == []
    assert "more GPUs alone do not help" in said
    assert "fsdp2" not in said
    assert "algorithm.algorithm_type: grpo and algorithm.repeat_times: 2 (no critic)" in said
    grpo = ("algorithm.algorithm_type=grpo", "algorithm.repeat_times=2")
    assert refusals(resolved(machine(8), *grpo), machine(8)) == []


def test_a_critic_of_an_unknown_model_is_not_planned(resolved) -> None:
    ppo = ("algorithm.algorithm_type=ppo", "algorithm.repeat_times=1")
    paths = ("model.model_path=qwen2.5-1.5b", "model.critic_model_path=")
    known, unknown = (
        resolved(machine(8, "qwen2.5-1.5b"), *ppo, paths[0], paths[1] + name)
        for name in ("models/Qwen2.5-0.5B", "models/of-somebody")
    )

    assert any("with a critic" in note for note in known.notes)
    assert not any("at the peak of a step" in note for note in unknown.notes)
