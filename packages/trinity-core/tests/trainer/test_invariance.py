"""The gradient of a batch does not depend on how the batch is laid out, for any algorithm."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from trinity.algorithm.ops import LossAggMode
from trinity.algorithm.value_loss import clipped_value_loss
from trinity.common.batch import ExperienceBatch, Fields
from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.model import ModelConfig
from trinity.common.config.trainer import TrainerConfig
from trinity.common.experience import EID, Experience
from trinity.extend import get_manager
from trinity.trainer.algorithm_builder import build_algorithm_parts
from trinity.trainer.algorithm_parts import weighted_loss
from trinity.trainer.prefix_tree import one_pack_per_row, rows_of
from trinity.trainer.torch_trainer import TorchTrainer

WHOLE_MODEL, LOSS_ALONE = 5e-6, 1e-10
MODES = get_args(LossAggMode)
ALGORITHMS = get_manager().names("algorithm")
LOSSES = [  # not what tests that were collected before have registered
    name
    for name in get_manager().names("policy_loss_fn")
    if get_manager().find("policy_loss_fn", name).held is None
]
KLS = [name for name in get_manager().names("kl_fn") if name != "none"]
MORE = {  # configurations beside each algorithm's own
    **{f"grpo, {name}": {"policy_loss_fn": name} for name in LOSSES if name.startswith("sft_")},
    **{f"grpo, KL {name}": {"kl_loss_fn": name} for name in ("abs", "corrected_k3")},
    "grpo, importance_sampling": {"policy_loss_fn": "importance_sampling"},
    "grpo, KL penalty": {"advantage_fn": "grpo_verl", "kl_penalty_fn": "k2"},
    "grpo, corrected": {"rollout_correction": {"rollout_is": "token", "rollout_rs": "geometric"}},
    "grpo, masked sequences": {"policy_loss_fn_args": {"enable_sequence_masking": True}},
}
CASES = {**{name: {} for name in ALGORITHMS}, **MORE}
FIRST = {"grpo", "ppo", "dpo", "opmd", "gspo", "sft"}
FIRST_AND_LATER = [
    name if name in FIRST else pytest.param(name, marks=pytest.mark.acceptance) for name in CASES
]


def section(name, *, mode="token-mean", **more):
    """Return the section ``algorithm`` with an entropy and a KL term that count."""
    kind = name.split(",")[0]
    own = get_manager().load("algorithm", kind).default_config()
    known = {key: value for key, value in own.items() if key in AlgorithmConfig.model_fields}
    if known.get("kl_loss_fn", "none") != "none" or "kl_loss_fn" in more:
        known["kl_loss_fn_args"] = {"kl_coef": 0.3}
    if known.get("entropy_loss_fn", "none") != "none":
        known["entropy_loss_fn_args"] = {"entropy_coef": 0.2}
    values = known | {"algorithm_type": kind, "loss_agg_mode": mode, "optimizer": {"lr": 1e-3}}
    config = AlgorithmConfig(**(values | more))
    loss = get_manager().load("policy_loss_fn", config.policy_loss_fn)
    if "loss_agg_mode" in inspect.signature(loss.__init__).parameters:
        config.policy_loss_fn_args = {"loss_agg_mode": mode} | (config.policy_loss_fn_args or {})
    return config


# ---- the losses alone, in float64


@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), num_parts=st.sampled_from([2, 4, 8]))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [f"grpo, {name}" for name in LOSSES if name != "dpo"] + ["dpo"])
def test_the_parts_of_a_loss_sum_to_the_whole(name, mode, seed, num_parts):
    own = {} if name == "dpo" else {"policy_loss_fn": name.split(", ")[1]}
    kl = KLS[seed % len(KLS)]
    parts = build_algorithm_parts(section(name, mode=mode, kl_loss_fn=kl, **own))
    fields = some_fields(seed, is_mixed="mix" in name)
    units = [[2 * n, 2 * n + 1] for n in range(8)] if name == "dpo" else [[n] for n in range(16)]

    whole = loss_gradient(parts, fields, [list(range(16))])
    cut = loss_gradient(parts, fields, some_cut(units, num_parts, seed=seed))

    assert whole.norm() > 1e-6
    assert (cut - whole).norm() <= LOSS_ALONE * whole.norm()


def some_fields(seed, *, is_mixed):
    draw = torch.Generator().manual_seed(seed)
    shape = 16, 7

    def noise(scale=1.0):
        return scale * torch.randn(shape, generator=draw, dtype=torch.float64)

    logprob = -2.0 + noise(0.5)
    mask = torch.rand(shape, generator=draw) < 0.7
    mask[:, 0] = True
    fields = {
        "logprob": logprob,
        "policy_logprob": logprob,
        "old_logprob": logprob + noise(0.2),
        "ref_logprob": logprob + noise(0.3),
        "entropy": 1.0 + noise(0.2),
        "advantages": noise(),
        "action_mask": mask,
        "rollout_weight": noise().exp(),
        "rewards": noise()[:, 0],
        "returns": noise(),
        "token_level_rewards": noise(),
    }
    if is_mixed:
        return fields | {
            "expert_mask": torch.rand(16, generator=draw) < 0.4,
            "step": torch.full((16,), 3, dtype=torch.int32),
        }
    return fields


def some_cut(units, num_parts, *, seed):
    """Return the rows of each micro-batch: units in any order."""
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(units), generator=draw).tolist()
    edges = torch.randperm(len(units) - 1, generator=draw)[: num_parts - 1] + 1
    edges = [0, *sorted(edges.tolist()), len(units)]
    return [[row for unit in order[a:b] for row in units[unit]] for a, b in pairwise(edges)]


def loss_gradient(parts, fields, cut):
    leaves = {n: fields[n].clone().requires_grad_() for n in ("logprob", "entropy")}
    for rows in cut:
        part = Fields({name: value[rows] for name, value in (fields | leaves).items()})
        weighted_loss(parts, part, whole=Fields(fields)).loss.backward()
    return torch.cat([leaf.grad for leaf in leaves.values() if leaf.grad is not None])


@pytest.mark.parametrize("mode", MODES)
def test_the_critics_loss_divides_by_what_the_trainer_weighs(mode):
    from trinity.algorithm.ops import normalizer_of_mode, weight_of_part

    fields = some_fields(5, is_mixed=False)

    def gradient(cut):
        values = fields["logprob"].clone().requires_grad_()
        for rows in cut:
            loss, _ = clipped_value_loss(
                values[rows],
                old_values_BR=fields["old_logprob"][rows],
                returns_BR=fields["returns"][rows],
                mask_BR=fields["action_mask"][rows],
                loss_agg_mode=mode,
            )
            mask = fields["action_mask"]
            (loss * weight_of_part(normalizer_of_mode(mode), mask[rows], mask)).backward()
        return values.grad

    whole = gradient([list(range(16))])
    cut = gradient(some_cut([[n] for n in range(16)], 4, seed=1))
    assert (cut - whole).norm() <= LOSS_ALONE * whole.norm()


# ---- a whole model, in float32


@pytest.fixture(scope="module")
def trainer_of(tiny):
    """Return the trainer of a case, its policy away from the reference."""
    made = {}

    def build(name):
        if name not in made:
            made[name] = a_trainer_away_from_its_reference(tiny, section(name, **CASES[name]))
        return made[name]

    return build


def a_trainer_away_from_its_reference(path, algorithm):
    config = SimpleNamespace(
        audit="warn",
        algorithm=algorithm,
        trainer=TrainerConfig(max_token_len_per_gpu=4096),
        model=ModelConfig(),
        explorer=ExplorerConfig(),
    )
    trainer = TorchTrainer(config, model_path=str(path), total_steps=10, seed=0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=draw))
        if trainer._critic is not None:
            trainer._critic._head.weight.fill_(0.1)
    return trainer


ROWS = st.lists(  # which prompt, how long, and whether the row goes on from the one before
    st.tuples(st.integers(0, 2), st.integers(2, 9), st.booleans()), min_size=8, max_size=12
)


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a smaller batch says no more, and takes long to find
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(shapes=ROWS, seed=st.integers(0, 2**31))
@pytest.mark.parametrize("name", FIRST_AND_LATER)
def test_a_models_gradient_is_that_of_the_batch(name, shapes, seed, trainer_of):
    trainer = trainer_of(name)
    experiences = pairs(shapes, seed) if name == "dpo" else rows_of_shapes(name, shapes, seed)
    place_rollout(trainer, experiences, seed=seed)
    batch = prepared(trainer, experiences)
    packs = one_pack_per_row([exp.tokens.numpy() for exp in batch.experiences])
    size = 2 if name == "dpo" else 1
    units = [list(range(n, n + size)) for n in range(0, len(packs), size)]
    whole = gradients(trainer, batch, [packs])
    plans = {"as the trainer does": trainer._scorer.plan(batch)}
    for num_parts in (2, 4, 8):
        cut = some_cut(units, num_parts, seed=seed)
        plans[f"in {num_parts}"] = [[packs[row] for row in rows] for rows in cut]

    found = {way: gradients(trainer, batch, plan) for way, plan in plans.items()}
    order = torch.randperm(len(experiences), generator=torch.Generator().manual_seed(seed)).tolist()
    mixed = prepared(trainer, [experiences[place] for place in order])
    found["in another order"] = gradients(trainer, mixed, trainer._scorer.plan(mixed))

    for way, parts in found.items():
        for part, expected in zip(parts, whole, strict=True):
            assert expected.norm() > 0
            assert (part - expected).norm() <= WHOLE_MODEL * expected.norm(), way


def rows_of_shapes(name, shapes, seed):
    """Return ragged rows of three prompts, some of which extend the one before."""
    draw = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(3, 384, (n,), generator=draw) for n in (12, 4, 8)]
    rows = []
    for number, (prompt, length, goes_on) in enumerate(shapes):
        extends = goes_on and number > 0 and len(rows[-1].tokens) < 40
        start = rows[-1].tokens if extends else prompts[prompt]
        task = rows[-1].eid.task if extends else prompt
        mask = torch.rand(length, generator=draw) < 0.8
        mask[-1] = True
        rows.append(
            Experience(
                tokens=torch.cat((start, torch.randint(3, 384, (length,), generator=draw))),
                prompt_length=len(start),
                reward=torch.randn((), generator=draw).item(),
                action_mask=mask,
                advantages=torch.randn(length, generator=draw) if name == "gigpo" else None,
                teacher_logprobs=-2.0 + 0.5 * torch.randn(length, generator=draw),
                temperature=(1.0, 0.7)[number % 2],
                eid=EID(0, task, number),
                info={"model_version": 0}
                | ({"is_expert": number % 3 == 1, "step": 2} if name.startswith("mix") else {}),
            )
        )
    return rows


def pairs(shapes, seed):
    rows = rows_of_shapes("dpo", [(prompt, length, False) for prompt, length, _ in shapes], seed)
    draw = torch.Generator().manual_seed(seed)
    return [
        Experience(
            tokens=row.tokens[: row.prompt_length],
            prompt_length=row.prompt_length,
            chosen=row.tokens[row.prompt_length :],
            rejected=torch.randint(3, 384, (2 + number % 5,), generator=draw),
        )
        for number, row in enumerate(rows)
    ]


def place_rollout(trainer, experiences, *, seed):
    """Give rows the log-probabilities of an older policy, away from where losses clip."""
    if experiences[0].is_preference_pair:
        return
    draw = torch.Generator().manual_seed(seed)
    own_BR = trainer._scorer.logprobs(ExperienceBatch.from_experiences(experiences))
    distances = torch.tensor([-0.6, -0.07, 0.05, 0.09, 0.5])
    for row, exp in enumerate(experiences):
        chosen = torch.randint(0, 5, (exp.response_length,), generator=draw)
        exp.logprobs = own_BR[row, : exp.response_length] + distances[chosen]


def prepared(trainer, experiences):
    fresh = [replace(exp) for exp in experiences]
    batch, _ = trainer._preparation.batch_of(fresh, lambda name: nullcontext(), version=0)
    return batch


def gradients(trainer, batch, plan):
    """Return the gradient of the policy and, if there is one, of the critic."""
    trainer._accumulate(batch, plan, step=1)
    found = [flat_gradient(trainer.model)]
    if trainer._critic is not None:
        trainer._critic._scorer = SimpleNamespace(plan=lambda batch, policy: plan)
        trainer._critic._accumulate(batch, step=1)
        trainer._critic._scorer = trainer._scorer
        found.append(flat_gradient(trainer._critic.module))
    return found


def flat_gradient(module):
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def test_the_plans_of_the_trainer_share_and_cut(trainer_of):
    shapes = [(n % 3, 4 + n % 3, n % 4 == 3) for n in range(12)]
    trainer = trainer_of("grpo")
    experiences = rows_of_shapes("grpo", shapes, 3)
    place_rollout(trainer, experiences, seed=3)

    plan = trainer._scorer.plan(prepared(trainer, experiences))

    assert sorted(row for packs in plan for row in rows_of(packs)) == list(range(12))
    assert any(len(pack.rows) > 2 for packs in plan for pack in packs)
