"""What a step computes, and how long it takes at measured speeds: numbers worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from trinity.common.config.memory import ModelShape, TrainerMemory, known_shape
from trinity_debug.plan_time import arrangements, colocated_lines, time_lines, work_of


def a_stage(**rollout):
    engines = {"engine_num": 4, "tensor_parallel_size": 1, "gpu_memory_utilization": 0.5} | rollout
    return SimpleNamespace(
        mode="both",
        is_colocated=rollout.pop("is_colocated", False),
        buffer=SimpleNamespace(batch_size=128),
        algorithm=SimpleNamespace(repeat_times=8),
        model=SimpleNamespace(max_prompt_tokens=1024, max_response_tokens=4096),
        explorer=SimpleNamespace(rollout_model=SimpleNamespace(**engines)),
    )


def a_train_stage(schema, *, batch):
    """A stage of mode train, whose defaults of rollouts stand beside its batch."""
    stage = a_stage()
    stage.mode, rows = "train", SimpleNamespace(schema_type=schema)
    stage.buffer = SimpleNamespace(
        batch_size=1,
        train_batch_size=batch,
        trainer_input=SimpleNamespace(experience_buffer=rows),
    )
    return stage


def a_plan(name="Qwen2.5-7B", **options):
    return TrainerMemory(shape=known_shape(name), num_ranks=4, **options)


def test_a_step_of_7b_computes_eight_times_its_products_where_it_recomputes() -> None:
    """128 groups of 8 rows of 5,120 tokens. The embedding of 152,064 x 3,584 is looked up."""
    used = 7_615_616_512 - 152_064 * 3584
    tokens = 128 * 8 * 5120

    work = work_of(a_stage(), a_plan(recomputes=True, has_reference=True))

    assert work.trained_tokens == tokens == 5_242_880
    assert work.new_tokens == 128 * 8 * 4096 == 4_194_304
    assert work.train_flops == pytest.approx(10 * used * tokens)
    assert work.rollout_flops == pytest.approx(2 * used * (4_194_304 + 128 * 1024))
    plain = work_of(a_stage(), a_plan())
    assert plain.train_flops == pytest.approx(6 * used * tokens)


def test_an_output_layer_that_is_the_embedding_is_multiplied() -> None:
    work = work_of(a_stage(), a_plan("Qwen2.5-0.5B"))

    assert work.train_flops == pytest.approx(6 * 494_032_768 * 5_242_880)


def test_a_token_of_a_mixture_is_multiplied_by_the_experts_that_it_goes_to() -> None:
    """Qwen3-30B-A3B: 48 layers, 2,048 wide, 128 experts of 768 numbers, of which 8 are used.

    Attention 2 x 2048 x (4096 + 512), experts 3 x 2048 x 8 x 768, choices 2048 x 128, norms 4096:
    56,889,344 a layer; the output layer and the last norm have 311,166,976.
    """
    shape = ModelShape.of(
        {
            **{"hidden_size": 2048, "num_hidden_layers": 48, "vocab_size": 151936},
            **{"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128},
            **{"intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128},
            "num_experts_per_tok": 8,
        }
    )

    work = work_of(a_stage(), TrainerMemory(shape=shape, recomputes=True, has_reference=True))

    assert work.train_flops == 10 * (48 * 56_889_344 + 311_166_976) * 5_242_880


@pytest.mark.parametrize(
    ("rollout_s", "train_s", "engines", "ranks", "expected"),
    [
        (6.0, 2.0, 4, 4, {"in turns": (8, 0.5), "overlapped": (6, 0.667), "colocated": (4, 1)}),
        # 2 x 10 + 6 x 10 = 80 GPU seconds on 8 GPUs
        (10.0, 10.0, 2, 6, {"in turns": (20, 0.5), "overlapped": (10, 1), "colocated": (10, 1)}),
        # 1 x 30 + 7 x 2 = 44 GPU seconds on 8 GPUs: 5.5 s
        (
            30.0,
            2.0,
            1,
            7,
            {"in turns": (32, 0.172), "overlapped": (30, 0.183), "colocated": (5.5, 1)},
        ),
    ],
)
def test_the_ways_to_share_gpus(rollout_s, train_s, engines, ranks, expected) -> None:
    assert arrangements(rollout_s, train_s, engines=engines, ranks=ranks) == expected


def test_seconds_are_told_at_speeds_that_were_measured_and_at_no_others() -> None:
    """4,194,304 tokens by 4 engines of 4,096 tokens/s: 256 s. 42.6 TFLOP x 5,242,880 / 4 / 300."""
    plan = a_plan()

    (alone,) = time_lines(a_stage(), plan, tflops=None, tokens_per_s=4096.0)
    lines = time_lines(a_stage(), plan, tflops=300.0, tokens_per_s=4096.0)

    train_s = work_of(a_stage(), plan).train_flops / (4 * 300e12)
    assert lines[0] == alone
    assert alone.startswith("a step, at most: 5,242,880 tokens trained, 4,194,304 sampled; ")
    assert f"rollouts 256.0 s, train step {train_s:,.1f} s" in lines[1]
    assert lines[2].startswith(f"in turns: a step takes {256 + train_s:,.1f} s, GPUs are busy 50%")
    names = [line.partition(":")[0] for line in lines[2:5]]
    assert names == ["in turns", "overlapped", "colocated"]
    # both sides have 4 GPUs: 185.4 s and 256 s take 256 s overlapped, and their mean colocated
    assert lines[5] == (
        "colocated is the faster one as long as engines take less than 35.3 s a step to sleep, "
        "wake up and load 15.2 GB of weights; else overlapped is"
    )
    even = time_lines(a_stage(), plan, tflops=217.2, tokens_per_s=4096.0)  # 256 s each
    assert even[5].startswith("overlapped is the faster one: colocated GPUs would gain 0.0 s a ste")


def test_a_colocated_file_is_compared_with_both_sides_on_half_of_its_gpus() -> None:
    """8 GPUs do 2 s of rollouts and 6 s of training: 64 GPU seconds. Halves take 4 s and 12 s."""
    found = arrangements(2.0, 6.0, engines=8, ranks=8, is_colocated=True)

    assert found == {"in turns": (16, 0.5), "overlapped": (12, 0.667), "colocated": (8, 1)}


def test_gpus_of_a_colocated_file_that_have_no_engine_are_idle_during_rollouts() -> None:
    """4 engines sample for 6 s, 8 ranks train for 2 s: 40 of 64 GPU seconds are busy."""
    found = arrangements(6.0, 2.0, engines=4, ranks=8, is_colocated=True)

    assert found["colocated"] == (8, 0.625)


def test_on_one_gpu_there_is_nothing_to_compare() -> None:
    found = arrangements(2.0, 6.0, engines=1, ranks=1, is_colocated=True)
    lines = time_lines(
        a_stage(engine_num=1, is_colocated=True),
        TrainerMemory(shape=known_shape("Qwen2.5-0.5B")),
        tflops=300.0,
        tokens_per_s=4096.0,
    )

    assert found == {"colocated": (8, 1)}
    assert lines[-1].startswith("colocated: a step takes ")


def test_the_peak_of_a_colocated_gpu_is_that_of_either_side() -> None:
    """0.5B at rest is 5.93 GB; an engine takes half of 40 GB; a step of 512 tokens needs less."""
    plan = TrainerMemory(shape=known_shape("Qwen2.5-0.5B"))
    stage = a_stage(is_colocated=True)
    stage.trainer = SimpleNamespace(max_token_len_per_gpu=512)

    (line,) = colocated_lines(stage, plan, gpu_bytes=40 * 10**9, num_gpus=1)

    step = plan.peak(512) / 1e9
    assert line.startswith("colocated: 25.9 GB on each GPU at the peak; 25.9 GB while engines are ")
    assert f"{step:.1f} GB in a train step (engines asleep)" in line
    assert step < 25.9
    assert colocated_lines(a_stage(), plan, gpu_bytes=40 * 10**9, num_gpus=1) == []


def test_a_file_that_is_not_colocated_is_told_what_it_would_need_so() -> None:
    """0.5B whole on each of 8 GPUs is 5.93 GB at rest, and an engine would take the rest."""
    stage = a_stage()
    stage.trainer = SimpleNamespace(max_token_len_per_gpu=512)
    plan = TrainerMemory(shape=known_shape("Qwen2.5-0.5B"), num_ranks=4)

    (line,) = colocated_lines(stage, plan, gpu_bytes=40 * 10**9, num_gpus=8)

    # what of 40 GB can be used: 38 GB, less 8 %
    assert line.startswith("mode colocate would have 8 ranks and engines: 35.0 GB on each GPU at ")


@pytest.mark.parametrize(("schema", "rows"), [("sft", 128), ("dpo", 256), ("experience", 128)])
def test_a_train_step_without_rollouts_trains_its_batch_and_samples_nothing(schema, rows) -> None:
    """128 rows of 5,120 tokens are 655,360; a preference pair is two rows."""
    stage = a_train_stage(schema, batch=128)

    work = work_of(stage, a_plan())
    lines = time_lines(stage, a_plan(), tflops=300.0, tokens_per_s=4096.0)

    used = 7_615_616_512 - 152_064 * 3584
    assert (work.trained_tokens, work.new_tokens) == (rows * 5120, 0)
    assert work.rollout_flops == 0.0
    assert work.train_flops == pytest.approx(6 * used * rows * 5120)
    (line,) = lines
    assert line == (
        f"a train step, at most: {rows * 5120:,} tokens trained; "
        f"trainer {6 * used * rows * 5120 / 1e15:,.1f} PFLOP"
    )


def test_a_critic_is_computed_too_and_its_values_are_a_forward_pass_more() -> None:
    """It has neither the output layer nor, for a token, the embedding: 152,064 x 3,584 each."""
    shape = known_shape("Qwen2.5-7B")
    used, of_critic = 7_615_616_512 - 152_064 * 3584, 7_615_616_512 - 2 * 152_064 * 3584

    plain = work_of(a_stage(), a_plan(critic=shape))
    recomputed = work_of(a_stage(), a_plan(critic=shape, recomputes=True))

    assert plain.train_flops == pytest.approx((6 * used + 8 * of_critic) * 5_242_880)
    assert recomputed.train_flops == pytest.approx((8 * used + 10 * of_critic) * 5_242_880)


def test_one_gpu_that_both_sides_use_is_busy_with_one_of_them_at_a_time() -> None:
    """4,194,304 tokens at 4,096 a second are 1,024 s; a step is that and the train step."""
    plan = TrainerMemory(shape=known_shape("Qwen2.5-0.5B"))
    stage = a_stage(engine_num=1)

    lines = time_lines(stage, plan, tflops=300.0, tokens_per_s=4096.0, is_shared=True)

    train_s = work_of(stage, plan).train_flops / 300e12
    assert lines[2:] == [
        f"in turns: a step takes {1024 + train_s:,.1f} s, GPUs are busy 100% of it"
    ]


def test_a_large_model_would_be_sharded_if_engines_and_trainer_took_turns() -> None:
    """7B on 2 GPUs: 12 P / 2 = 45.7 GB at rest on each, where one rank alone holds 91.4 GB."""
    stage = a_stage()
    stage.trainer = SimpleNamespace(max_token_len_per_gpu=512)
    plan = TrainerMemory(shape=known_shape("Qwen2.5-7B"), precision="bfloat16", recomputes=True)

    (line,) = colocated_lines(stage, plan, gpu_bytes=80 * 10**9, num_gpus=2, may_shard=True)
    (asked,) = colocated_lines(stage, plan, gpu_bytes=80 * 10**9, num_gpus=2)

    step = TrainerMemory(
        shape=plan.shape, strategy="fsdp2", num_ranks=2, precision="bfloat16", recomputes=True
    ).peak(512)
    assert f"{step / 1e9:.1f} GB in a train step" in line
    assert "91.4 GB while engines are awake" in asked
