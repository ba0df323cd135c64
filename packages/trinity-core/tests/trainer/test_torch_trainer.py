from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import accumulate, pairwise

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from trinity.common.batch import ExperienceBatch
from trinity.common.config.model import LoRAConfig
from trinity.errors import ModelError, TrinityError
from trinity.trainer import policy
from trinity.trainer.prefix_tree import one_pack_per_row
from trinity_testing.tiny import make_tiny_model


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.snapshot(copy=True).tensors.items()}


def numbers(metrics):
    return {name: value for name, value in metrics.items() if not name.startswith("time/")}


SFT = {"algorithm_type": "sft", "advantage_fn": None, "policy_loss_fn": "sft"}


def test_a_few_steps_of_sft_lower_the_loss(a_trainer, an_experience):
    rows = [an_experience(seed, reward=None) for seed in range(4)]
    trainer = a_trainer(lr=1e-2, **SFT)

    losses = [trainer.train_step(rows, step=step)["actor/sft_loss"] for step in range(1, 9)]

    assert losses[-1] < 0.5 * losses[0]
    assert trainer.version == 8


def test_grpo_makes_the_rewarded_response_likelier(a_trainer, an_experience):
    good, bad = an_experience(0, reward=1.0), an_experience(1, reward=0.0, run=1)
    trainer = a_trainer(lr=1e-3)

    def loglikelihood(row):
        batch = ExperienceBatch.from_experiences([row])
        return trainer._scorer.logprobs(batch).sum().item()

    before = loglikelihood(good) - loglikelihood(bad)
    for step in range(1, 4):
        trainer.train_step([good, bad], step=step)

    assert loglikelihood(good) - loglikelihood(bad) > before + 1.0


def test_a_step_reports_loss_gradient_rate_lengths_and_times(a_trainer, ragged):
    metrics = a_trainer(kl_loss_fn="k2", entropy_loss_fn="default").train_step(ragged(), step=1)

    expected = {
        "actor/loss",
        "actor/pg_loss",
        "actor/pg_clipfrac",
        "actor/ppo_kl",
        "actor/kl_loss",
        "actor/kl_coef",
        "actor/entropy_loss",
        "actor/grad_norm",
        "actor/lr",
        "actor/rollout_logprob_diff",
        "response_length/mean",
        "prompt_length/max",
        "perf/total_num_tokens",
        "time/advantage_s",
        "time/reference_s",
        "time/forward_backward_s",
        "time/optimizer_s",
    }
    assert expected <= metrics.keys()
    assert metrics["response_length/mean"] == (3 + 9 + 5 + 7 + 4 + 8 + 6 + 2) / 8
    assert metrics["actor/lr"] == 1e-3
    assert metrics["actor/kl_loss"] == 0.0  # the reference is what the policy still is


def test_rollout_logprobs_of_the_policy_itself_differ_from_its_own_by_nothing(a_trainer, ragged):
    trainer = a_trainer()
    rows = ragged()
    own = trainer._scorer.logprobs(ExperienceBatch.from_experiences(rows))
    for row, exp in enumerate(rows):
        exp.logprobs = own[row, : exp.response_length]

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/rollout_logprob_diff"] < 1e-5
    assert metrics["actor/ppo_kl"] == pytest.approx(0.0, abs=1e-5)
    assert metrics["actor/pg_clipfrac"] == 0.0


@pytest.mark.parametrize(
    ("bypass", "version", "is_reused"), [(True, 7, True), (False, 0, True), (False, 7, False)]
)
def test_the_rollouts_logprobs_are_the_old_ones_if_allowed_or_on_policy(
    a_trainer, ragged, bypass, version, is_reused
):
    rows = ragged(info={"model_version": version})

    metrics = a_trainer(bypass_old_logprobs=bypass).train_step(rows, step=1)

    # rows claim -5 a token, which the model does not; its own ones differ from itself by nothing
    assert (abs(metrics["actor/ppo_kl"]) > 0.1) == is_reused
    assert metrics["actor/rollout_logprob_diff"] > 0.1


def test_rows_without_logprobs_are_taken_as_on_policy(a_trainer, an_experience):
    rows = [an_experience(0, reward=1.0), an_experience(1, reward=0.0, run=1)]

    metrics = a_trainer().train_step(rows, step=1)

    assert metrics["actor/ppo_kl"] == 0.0
    assert "actor/rollout_logprob_diff" not in metrics


@pytest.mark.parametrize("budget", [30, 60])
def test_the_budget_of_tokens_does_not_change_the_step(a_trainer, ragged, budget):
    whole, cut = a_trainer(), a_trainer(trainer={"max_token_len_per_gpu": budget})

    expected, metrics = whole.train_step(ragged(), step=1), cut.train_step(ragged(), step=1)

    assert metrics["perf/num_micro_batches"] > expected["perf/num_micro_batches"] == 1
    assert metrics["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=5e-6)
    assert metrics["actor/loss"] == pytest.approx(expected["actor/loss"], rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "mode", "more"),
    [
        ("ppo", "token-mean", {"enable_sequence_masking": True}),  # reports means over rows
        ("ppo", "seq-mean-token-mean", {"clip_range": 0.01}),  # reports means over tokens
        ("gspo", "seq-mean-token-mean", {}),  # reports both
    ],
)
def test_metrics_do_not_depend_on_the_number_of_micro_batches(a_trainer, ragged, loss, mode, more):
    trainer = a_trainer(
        policy_loss_fn=loss,
        policy_loss_fn_args={"loss_agg_mode": mode} | more,
        loss_agg_mode=mode,
        kl_loss_fn="k2",
        entropy_loss_fn="default",
    )
    rows = ragged()
    own_BR = trainer._scorer.logprobs(ExperienceBatch.from_experiences(rows))
    for number, exp in enumerate(rows):  # each at another distance, none where a loss has a kink
        exp.logprobs = own_BR[number, : exp.response_length] + 0.1 * (number - 3) + 0.03
    batch, _ = trainer._preparation.batch_of(rows, lambda name: nullcontext(), version=0)
    batch["ref_logprob"] = batch["old_logprob"] - 0.3
    packs = one_pack_per_row([exp.tokens.numpy() for exp in rows])

    def metrics(*sizes):
        edges = [0, *accumulate(sizes)]
        return trainer._accumulate(batch, [packs[a:b] for a, b in pairwise(edges)], step=1)

    whole = metrics(8)

    assert abs(whole["ppo_kl"]) > 0.01
    for sizes in ((5, 3), (1, 2, 1, 4), (1, 1, 1, 1, 1, 1, 1, 1)):
        assert metrics(*sizes) == pytest.approx(whole, rel=1e-4, abs=1e-6)


@pytest.fixture
def of_few_prompts(an_experience):
    """Return rows with equal prompts, one answer that goes on with another, and one of its own."""
    prompts, rows = {0: [5, 6, 7, 8], 1: [5, 6, 9], 2: [300, 301]}, []
    for number, (task, length) in enumerate([(0, 3), (0, 6), (1, 4), (0, 2), (1, 7), (2, 5)]):
        answer = an_experience(number, response=length).tokens[4:].tolist()
        rows.append((task, prompts[task] + answer))
    rows.append((0, [*rows[1][1], 17, 18]))
    return [
        an_experience(
            number,
            tokens=tokens,
            prompt=len(prompts[task]),
            reward=float(number % 2),
            task=task,
            run=number,
            logprobs=[-5.0] * (len(tokens) - len(prompts[task])),
        )
        for number, (task, tokens) in enumerate(rows)
    ]


@pytest.mark.parametrize("budget", [4096, 30, 8])
def test_prompts_that_are_computed_once_do_not_change_the_step(a_trainer, of_few_prompts, budget):
    algorithm = {"kl_loss_fn": "k2", "entropy_loss_fn": "default", "lr": 0.0}
    apart = a_trainer(trainer={"prefix_sharing": "off"}, **algorithm)
    shared = a_trainer(trainer={"max_token_len_per_gpu": budget}, **algorithm)

    expected = apart.train_step(of_few_prompts, step=1)
    metrics = shared.train_step(of_few_prompts, step=1)

    assert expected["perf/shared_ratio"] == 0.0
    assert (metrics["perf/shared_ratio"] > 0.2) == (budget > 8)
    for name in ("grad_norm", "loss", "pg_loss", "kl_loss", "entropy_loss", "rollout_logprob_diff"):
        wanted = pytest.approx(expected[f"actor/{name}"], rel=1e-5, abs=1e-7)
        assert metrics[f"actor/{name}"] == wanted, name


def test_each_weights_gradient_is_that_of_the_rows_apart(a_trainer, of_few_prompts):
    gradients = []
    for sharing in ("off", "auto"):
        trainer = a_trainer(trainer={"prefix_sharing": sharing})
        batch, _ = trainer._preparation.batch_of(
            of_few_prompts, lambda name: nullcontext(), version=0
        )
        trainer._accumulate(batch, trainer._scorer.plan(batch), step=1)
        gradients.append({name: p.grad for name, p in trainer.model.named_parameters()})

    for name, expected in gradients[0].items():
        scale = expected.abs().max().item()
        assert torch.allclose(gradients[1][name], expected, rtol=1e-4, atol=1e-5 * scale), name


def test_two_trainers_of_one_seed_make_equal_steps(a_trainer, ragged):
    first, second = a_trainer(), a_trainer()

    for step in (1, 2):
        assert numbers(first.train_step(ragged(), step=step)) == numbers(
            second.train_step(ragged(), step=step)
        )
    assert all(torch.equal(w, weights(second)[name]) for name, w in weights(first).items())


def test_tokens_under_the_mask_teach_nothing(a_trainer, an_experience):
    mask = [True, True, False, True, True]

    def step(logprob):
        rows = [
            an_experience(n, reward=float(n), run=n, action_mask=mask, logprobs=[-5.0] * 5)
            for n in range(2)
        ]
        for row in rows:
            row.logprobs[2] = logprob
        trainer = a_trainer()
        return numbers(trainer.train_step(rows, step=1))

    assert step(1e30) == step(0.0)


def test_a_loss_that_is_no_number_stops_before_the_weights_change(a_trainer, ragged, golden):
    trainer = a_trainer()
    before = weights(trainer)
    rows = ragged()
    rows[2].logprobs[0] = math.nan

    with pytest.raises(TrinityError) as caught:
        trainer.train_step(rows, step=5)

    golden(str(caught.value), "trainer_loss_not_finite")
    assert all(torch.equal(w, weights(trainer)[name]) for name, w in before.items())
    assert trainer.version == 0
    assert numbers(trainer.train_step(ragged(), step=5)) == numbers(
        a_trainer().train_step(ragged(), step=5)
    )


def test_a_batch_that_the_advantage_function_empties_changes_no_weight(a_trainer, an_experience):
    rows = [an_experience(n, run=n) for n in range(2)]  # equal rewards
    trainer = a_trainer(advantage_fn_args={"std_threshold": 0.0})
    before = weights(trainer)

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/skipped_batch"] == 1.0
    assert metrics["advantage/filtered_count"] == 2.0
    assert all(torch.equal(w, weights(trainer)[name]) for name, w in before.items())
    assert trainer.version == 1  # as many as steps: ages are counted with both


def test_a_batch_without_a_token_to_train_on_changes_no_weight(a_trainer, an_experience) -> None:
    rows = [an_experience(n, run=n, reward=float(n)) for n in range(2)]
    for row in rows:
        row.action_mask = torch.zeros(row.response_length, dtype=torch.bool)
    trainer = a_trainer()
    before = weights(trainer)

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/skipped_batch"] == 1.0
    assert all(torch.equal(w, weights(trainer)[name]) for name, w in before.items())
    assert trainer.version == 1  # as many as steps: ages are counted with both


def test_advantages_that_the_rows_bring_are_kept(a_trainer, an_experience):
    rows = [an_experience(n, run=n, advantages=[float(n)] * 5) for n in range(2)]

    metrics = a_trainer().train_step(rows, step=1)

    # r = 1, so the loss is minus the mean advantage
    assert metrics["actor/pg_loss"] == pytest.approx(-0.5)


def test_an_entropy_bonus_makes_the_policy_less_decided(a_trainer, ragged):
    trainer = a_trainer(
        lr=1e-2, entropy_loss_fn="default", entropy_loss_fn_args={"entropy_coef": 10.0}
    )

    values = [trainer.train_step(ragged(), step=s)["actor/entropy_loss"] for s in range(1, 5)]

    assert values[-1] > values[0]


def test_gradient_checkpointing_gives_the_same_step(a_trainer, ragged):
    plain, frugal = a_trainer(), a_trainer(trainer={"gradient_checkpointing": True})

    expected, metrics = plain.train_step(ragged(), step=1), frugal.train_step(ragged(), step=1)

    assert metrics["actor/grad_norm"] == pytest.approx(expected["actor/grad_norm"], rel=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gradient_checkpointing_and_shared_prefixes_give_the_gradient_of_the_plain_way(
    a_trainer, of_few_prompts, precision
):
    def step(**options):
        trainer = a_trainer(trainer={"precision": precision} | options)
        batch, _ = trainer._preparation.batch_of(
            of_few_prompts, lambda name: nullcontext(), version=0
        )
        plan = trainer._scorer.plan(batch)
        with trainer._policy.recomputing():
            trainer._accumulate(batch, plan, step=1)
        return torch.cat([p.grad.flatten() for p in trainer.model.parameters()]), plan

    plain, _ = step(prefix_sharing="off")
    both, plan = step(gradient_checkpointing=True)

    assert any(len(pack.rows) > 1 for packs in plan for pack in packs)
    limit = 5e-6 if precision == "float32" else 0.1
    assert (both - plain).norm() <= limit * plain.norm()


def test_the_weights_the_optimizer_and_the_checkpoint_of_bfloat16_are_float32(
    a_trainer, ragged, tmp_path
):
    trainer = a_trainer(lr=1e-6, trainer={"precision": "bfloat16"})
    before = weights(trainer)

    trainer.train_step(ragged(), step=1)
    trainer.save(tmp_path)

    after = weights(trainer)
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    assert any(not torch.equal(after[name], before[name]) for name in before)  # bfloat16: no digit
    resumed = a_trainer(trainer={"precision": "bfloat16"})
    resumed.load(tmp_path)
    assert all(torch.equal(weights(resumed)[name], after[name]) for name in after)


def test_bfloat16_computes_nearly_the_same_on_float32_weights(a_trainer, ragged):
    exact, rough = a_trainer(), a_trainer(trainer={"precision": "bfloat16"})

    expected, metrics = exact.train_step(ragged(), step=1), rough.train_step(ragged(), step=1)

    assert rough.model.dtype == torch.float32
    assert metrics["actor/loss"] == pytest.approx(expected["actor/loss"], abs=0.1)


def test_a_folder_without_a_model_is_named(a_trainer, tmp_path):
    with pytest.raises(ModelError, match=r"cannot load model .* model\.model_path must be"):
        a_trainer(model_path=tmp_path)


def test_a_kl_penalty_leaves_the_rollouts_logprobs_of_stale_rows_to_be_compared(a_trainer, ragged):
    trainer = a_trainer(bypass_old_logprobs=False, advantage_fn="grpo_verl", kl_penalty_fn="k2")

    metrics = trainer.train_step(ragged(info={"model_version": 7}), step=1)

    # rows claim -5 a token, which the model does not say of any
    assert metrics["actor/rollout_logprob_diff"] > 0.1
    assert abs(metrics["actor/ppo_kl"]) < 1e-5  # old log-probabilities are the policy's own


def test_a_kl_penalty_is_not_of_an_experts_rows(a_trainer, ragged):
    rows = ragged()
    for row in rows[:4]:
        row.logprobs, row.info = torch.zeros(row.response_length), {"is_expert": True, "step": 1}
    trainer = a_trainer(advantage_fn="reinforceplusplus", kl_penalty_fn="k2")
    own = trainer._scorer.logprobs(ExperienceBatch.from_experiences(rows[4:]))
    for place, row in enumerate(rows[4:]):  # of the model itself, which the reference still is
        row.logprobs, row.info = own[place, : row.response_length], {"is_expert": False, "step": 1}

    metrics = trainer.train_step(rows, step=1)

    assert metrics["actor/kl_penalty/kl"] == pytest.approx(0.0, abs=1e-9)


class Calls(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_a_tied_embedding_needs_no_second_gradient_of_the_vocabularys_size(a_trainer, ragged):
    trainer, plain = a_trainer(), a_trainer()
    plain.model.get_input_embeddings().sparse = False  # as torch has it

    with Calls() as calls:
        trainer.train_step(ragged(), step=1)
    with Calls() as usual:
        plain.train_step(ragged(), step=1)

    assert "embedding_dense_backward.default" in usual.names
    assert "embedding_dense_backward.default" not in calls.names
    weights, expected = (one.model.get_input_embeddings().weight for one in (trainer, plain))
    assert weights.grad is None or not weights.grad.is_sparse
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


def test_an_embedding_without_an_output_layer_keeps_a_dense_gradient(a_trainer, tmp_path):
    model = make_tiny_model(tmp_path / "untied", vocab=384, tie_embeddings=False)

    assert not a_trainer(model_path=model).model.get_input_embeddings().sparse


@pytest.mark.parametrize(
    ("tied", "lora", "most"),
    [(True, None, 10), (False, None, 2), (True, [LoRAConfig(lora_rank=2)], 2)],
)  # of 32: a third of their logits take as much; a frozen layer has no gradient
def test_chunks_of_a_tied_output_layer_are_not_smaller_than_its_gradient(
    a_trainer, ragged, tmp_path, monkeypatch, tied, lora, most
):
    monkeypatch.setitem(policy.MAX_LOGITS, "cpu", 2 * 384)  # two tokens
    if lora:
        pytest.importorskip("peft", exc_type=ImportError)
    model = make_tiny_model(tmp_path / "model", vocab=384, hidden=32, tie_embeddings=tied)
    trainer, sizes = a_trainer(model_path=model, lora=lora), []
    trainer.model.get_output_embeddings().register_forward_hook(
        lambda _, inputs, __: sizes.append(len(inputs[0]))
    )

    trainer.train_step(ragged(), step=1)

    assert max(sizes) == most
