"""What every advantage function must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from trinity.algorithm.advantage_fn import apply_advantage
from trinity.common.batch import ExperienceBatch

from trinity_testing.builders import a_batch
from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.numbers import HUGE, largest_difference, odd_metric, with_garbage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from trinity.extend.component import Component

__all__ = ["ZERO_FOR_EQUAL_REWARDS", "a_full_batch", "checks"]

ZERO_FOR_EQUAL_REWARDS = "zero_for_equal_rewards"  # a word of ComponentSpec.provides
REWARDS = ((1.0, 0.0, 0.5), (0.2, 0.9, 0.9), (-1.0, 2.0, 0.0))
TOLERANCE = 1e-5
RESIDUE = 1e-6  # rounding that a group of equal rewards may leave
TOKEN_FIELDS = (
    "token_level_rewards",
    "old_logprob",
    "ref_logprob",
    "teacher_logprob",
    "teacher_logprobs",
    "values",
    "entropys",
    "necs",
)


def has_shape_and_mask(component: Component, context: CheckContext) -> Finding | None:
    """Find advantages of another shape, advantages on masked tokens, and odd metrics."""
    result = _advantages_of(a_full_batch(), component, context)
    advantages_BR, mask_BR = result["advantages"], result["action_mask"]
    if advantages_BR.shape != mask_BR.shape:
        shapes = f"{list(advantages_BR.shape)}, the action mask {list(mask_BR.shape)}"
        return Finding(f"the advantages have the shape {shapes}")
    if not advantages_BR.is_floating_point():
        return Finding(f"the advantages are {advantages_BR.dtype}, not float")
    if not advantages_BR[mask_BR].isfinite().all():
        return Finding("an advantage is not finite")
    wide_BR = a_full_batch()["action_mask"]
    if mask_BR.shape == wide_BR.shape and int(mask_BR.sum()) > int(wide_BR.sum()):
        return Finding("it takes masked tokens for the model's own")
    if (advantages_BR[~mask_BR] != 0).any():
        return Finding("a masked token has an advantage that is not 0")
    _, metrics = apply_advantage(context.build(component), a_full_batch())
    problem = odd_metric(metrics)
    return Finding(problem, remedy="Return plain floats as metrics.") if problem else None


def ignores_the_order_of_rows(component: Component, context: CheckContext) -> Finding | None:
    """Find advantages that follow the order of the rows, or rows under another's id."""
    batch = a_full_batch()
    order = [4, 0, 8, 2, 6, 1, 5, 3, 7]
    plain = _by_row(_advantages_of(batch, component, context))
    mixed = _by_row(_advantages_of(a_full_batch().select(order), component, context))
    if plain.keys() != mixed.keys():
        return Finding("another order of the rows gives other rows")
    for uid, advantages_R in plain.items():
        difference = largest_difference(advantages_R, mixed[uid])
        if difference > TOLERANCE:
            return Finding(
                f"another order of the rows changes the advantages of row {uid} by {difference:.3g}"
            )
    return None


def is_finite_for_a_group_of_one(component: Component, context: CheckContext) -> Finding | None:
    """Find a function that divides by the spread of a single reward."""
    for rewards in (((1.0,),), ((1.0,), (0.5, 0.0))):
        result = _advantages_of(a_full_batch(rewards), component, context)
        advantages_BR = result["advantages"]
        if not advantages_BR[result["action_mask"]].isfinite().all():
            return Finding(f"the group of one in {rewards} has an advantage that is not finite")
    return None


def equal_rewards_teach_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a group of equal rewards with advantages, in a function that claims to give none."""
    if ZERO_FOR_EQUAL_REWARDS not in component.spec.provides:
        raise Skipped(f"it does not claim {ZERO_FOR_EQUAL_REWARDS!r}")
    for rewards in (((0.1, 0.1, 0.1),), ((0.7, 0.7, 0.7), (1.0, 1.0, 1.0))):
        advantages_BR = _advantages_of(a_full_batch(rewards), component, context)["advantages"]
        largest = float(advantages_BR.abs().max()) if len(advantages_BR) else 0.0
        if largest > RESIDUE:
            return Finding(
                f"a group whose rewards are all equal has advantages up to {largest:.3g}"
            )
    return None


def carries_no_gradient(component: Component, context: CheckContext) -> Finding | None:
    """Find advantages through which a gradient would flow."""
    batch = a_full_batch()
    for name in TOKEN_FIELDS:
        if name != "token_level_rewards":
            batch[name] = batch[name].requires_grad_()
    try:
        result = _advantages_of(batch, component, context)
    except RuntimeError as error:
        if "requires grad" in str(error):  # it left torch, where no gradient follows
            return None
        raise
    for name in ("advantages", "returns"):
        if name in result and result[name].requires_grad:
            return Finding(f"the {name} require a gradient")
    return None


def masked_tokens_have_no_influence(component: Component, context: CheckContext) -> Finding | None:
    """Find a function that reads values of masked tokens."""
    plain = _by_row(_advantages_of(a_full_batch(), component, context))
    batch = a_full_batch()
    for name in TOKEN_FIELDS:
        batch[name] = with_garbage(batch[name], batch["action_mask"])
    spoilt = _by_row(_advantages_of(batch, component, context))
    if plain.keys() != spoilt.keys():
        return Finding(f"{HUGE:g} at masked positions changes which rows there are")
    difference = max(largest_difference(plain[uid], spoilt[uid]) for uid in plain)
    if difference > TOLERANCE:
        return Finding(f"{HUGE:g} at masked positions changes an advantage by {difference:.3g}")
    return None


def a_full_batch(rewards: Sequence[Sequence[float]] = REWARDS) -> ExperienceBatch:
    """Return groups of rows of unequal length, the longest with a token that is not the model's."""
    batch = a_batch(rewards)
    mask_BR = batch["action_mask"]
    if mask_BR.shape[1] > 2:
        mask_BR[:, 1] &= mask_BR[:, 2:].sum(-1) == 0  # a hole where a token follows it
    steps_BR = torch.arange(mask_BR.numel(), dtype=torch.float32).reshape(mask_BR.shape)
    batch["token_level_rewards"] = batch["token_level_rewards"] * mask_BR
    batch["old_logprob"] = -0.5 - 0.01 * steps_BR
    batch["ref_logprob"] = -0.6 - 0.02 * steps_BR
    batch["teacher_logprob"] = -0.4 - 0.015 * steps_BR
    batch["teacher_logprobs"] = batch["teacher_logprob"].clone()
    batch["entropys"] = 1.0 + 0.1 * torch.cos(steps_BR)
    batch["necs"] = 0.05 * torch.cos(steps_BR)
    batch["reward_baselines"] = 0.1 * torch.ones(len(batch))
    batch["values"] = 0.1 * torch.sin(steps_BR)
    for row, experience in enumerate(batch.experiences):
        num = experience.response_length
        experience.action_mask = mask_BR[row, :num].clone()
        experience.logprobs = batch["old_logprob"][row, :num].clone()
    return batch


def _advantages_of(
    batch: ExperienceBatch, component: Component, context: CheckContext
) -> ExperienceBatch:
    function = context.build(component)
    try:
        result: Any = apply_advantage(function, batch)
    except KeyError as error:
        if "no field named" in str(error):
            raise Skipped(f"the kit cannot make a field that it reads: {error.args[0]}") from error
        raise
    if not (isinstance(result, tuple) and len(result) == 2):
        raise TypeError(f"it must return (batch, metrics), not {type(result).__name__}")
    if not isinstance(result[0], ExperienceBatch) or "advantages" not in result[0]:
        raise TypeError("it must return an ExperienceBatch with the field 'advantages'")
    return result[0]


def _by_row(batch: ExperienceBatch) -> dict[str, Tensor]:
    mask_BR = batch["action_mask"]
    return {
        experience.eid.uid: torch.where(mask_BR[row], batch["advantages"][row], 0.0)
        for row, experience in enumerate(batch.experiences)
    }


KINDS = frozenset({"advantage_fn"})
checks = (
    Check(
        id="advantage_fn.shape_mask",
        function=has_shape_and_mask,
        remedy="Write batch['advantages'] of the shape of action_mask, multiplied by it.",
        kinds=KINDS,
    ),
    Check(
        id="advantage_fn.permutation",
        function=ignores_the_order_of_rows,
        remedy="Find a row's group by batch.groups(), not by its place.",
        kinds=KINDS,
    ),
    Check(
        id="advantage_fn.group_of_one",
        function=is_finite_for_a_group_of_one,
        remedy="Treat a group with one member apart: its spread is unknown.",
        kinds=KINDS,
    ),
    Check(
        id="advantage_fn.equal_rewards",
        function=equal_rewards_teach_nothing,
        remedy="Take a group with max == min as one with advantage 0; or do not claim "
        f"{ZERO_FOR_EQUAL_REWARDS!r} in ComponentSpec.provides.",
        kinds=KINDS,
    ),
    Check(
        id="advantage_fn.no_grad",
        function=carries_no_gradient,
        remedy="Compute under torch.no_grad(), or detach what you return.",
        kinds=KINDS,
    ),
    Check(
        id="advantage_fn.masked",
        function=masked_tokens_have_no_influence,
        remedy="Select with the mask (torch.where) before any sum or product.",
        kinds=KINDS,
    ),
)
