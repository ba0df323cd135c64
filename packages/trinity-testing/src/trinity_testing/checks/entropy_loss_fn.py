"""What every entropy loss must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.loss_inputs import (
    Inputs,
    arguments,
    field_names,
    loss_inputs,
    spoilt,
)
from trinity_testing.checks.numbers import HUGE, largest_difference, odd_metric

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.extend.component import Component

__all__ = ["checks"]

TOLERANCE = 1e-5


def is_a_number(component: Component, context: CheckContext) -> Finding | None:
    """Find a value that is no finite number of the entropy's type, or odd metrics."""
    inputs = loss_inputs()
    value, metrics = _value(context.build(component), inputs)
    if value.dim() != 0 or not bool(value.isfinite()):
        return Finding(f"it returns {value!s:.60}, not one finite number")
    if value.dtype != inputs["entropy"].dtype:
        return Finding(f"it returns {value.dtype}, and the entropy is {inputs['entropy'].dtype}")
    problem = odd_metric(metrics)
    return Finding(problem, remedy="Return plain floats as metrics.") if problem else None


def masked_tokens_have_no_influence(component: Component, context: CheckContext) -> Finding | None:
    """Find a value that follows the entropy of masked tokens."""
    inputs = loss_inputs()
    plain, metrics = _value(context.build(component), inputs)
    other, others = _value(context.build(component), spoilt(inputs))
    difference = largest_difference(plain.detach(), other.detach())
    if difference > TOLERANCE:
        return Finding(f"{HUGE:g} at masked positions changes the value by {difference:.3g}")
    for name in metrics if isinstance(metrics, dict) else ():
        first, second = torch.tensor([float(metrics[name])]), torch.tensor([float(others[name])])
        if largest_difference(first, second) > TOLERANCE:
            return Finding(f"{HUGE:g} at masked positions changes the metric {name!r}")
    return None


def grows_with_the_entropy(component: Component, context: CheckContext) -> Finding | None:
    """Find a value that falls where the entropy grows, or follows it without a gradient."""
    inputs = loss_inputs()
    more, _ = _value(context.build(component), inputs | {"entropy": 1 + inputs["entropy"]})
    inputs["entropy"] = inputs["entropy"].requires_grad_()
    value, _ = _value(context.build(component), inputs)
    if not value.requires_grad:
        if value.shape == more.shape and largest_difference(value, more.detach()) > TOLERANCE:
            return Finding("it is a part of the loss, and no gradient flows to the entropy")
        return None  # measured, and not trained on
    if value.dim() != 0:
        raise Skipped("entropy_loss_fn.scalar fails")
    (gradient_BR,) = torch.autograd.grad(value, [inputs["entropy"]], allow_unused=True)
    if gradient_BR is not None and float(gradient_BR.sum()) < 0:
        return Finding("it falls where the entropy grows, so that undecided answers are punished")
    return None


def is_a_mean(component: Component, context: CheckContext) -> Finding | None:
    """Find a value that grows with the number of rows where a mean over tokens is asked for."""
    inputs = loss_inputs()
    twice = {name: torch.cat([value, value]) for name, value in inputs.items()}
    once, _ = _value(context.build(component), inputs)
    both, _ = _value(context.build(component), twice)
    if once.dim() or both.dim():
        raise Skipped("entropy_loss_fn.scalar fails")
    difference = largest_difference(once.detach(), both.detach())
    if difference > TOLERANCE:
        return Finding(f"each row twice changes the token-mean by {difference:.3g}")
    return None


def _value(function: Any, inputs: Inputs) -> tuple[Tensor, Any]:
    names = field_names(function)
    value, metrics = function(**arguments(inputs, names, whole=inputs))
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"it must return a tensor and metrics, not a {type(value).__name__}")
    return value, metrics


KINDS = frozenset({"entropy_loss_fn"})
checks = (
    Check(
        id="entropy_loss_fn.scalar",
        function=is_a_number,
        remedy="Aggregate over the masked tokens before you return, and return floats as metrics.",
        kinds=KINDS,
    ),
    Check(
        id="entropy_loss_fn.masked",
        function=masked_tokens_have_no_influence,
        remedy="Select the entropy with the mask (torch.where) before any sum.",
        kinds=KINDS,
    ),
    Check(
        id="entropy_loss_fn.direction",
        function=grows_with_the_entropy,
        remedy="Return plus entropy_coef times the mean entropy, not detached; the trainer "
        "subtracts it.",
        kinds=KINDS,
    ),
    Check(
        id="entropy_loss_fn.mean",
        function=is_a_mean,
        remedy="Aggregate with aggregate_loss() and the loss_agg_mode that it is given.",
        kinds=KINDS,
    ),
)
