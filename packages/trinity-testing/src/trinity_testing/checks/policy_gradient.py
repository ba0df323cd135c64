"""What the gradient of every policy loss must be: there, the trainer's to take, and downhill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.loss_inputs import Inputs, arguments, field_names, loss_inputs

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.extend.component import Component

__all__ = ["checks"]

OF_EXPERTS = (False, False, True, True)  # the first row has a positive advantage
SLACK = 1e-9


def has_a_gradient(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss that teaches nothing: a constant, or one that was detached."""
    inputs = loss_inputs()
    loss = _loss(context.build(component), inputs)
    if not loss.requires_grad:
        return Finding("the loss has no gradient: no weight would ever change")
    gradient_BR = _gradient(loss, inputs)
    if gradient_BR is None or not bool((gradient_BR != 0).any()):
        return Finding("the gradient of logprob is 0 for every token of an ordinary batch")
    return None


def leaves_backward_to_the_trainer(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss that calls ``backward`` itself, so that a gradient counts twice."""
    inputs = loss_inputs()
    _loss(context.build(component), inputs)
    if inputs["logprob"].grad is None:
        return None
    return Finding("it calls backward(): logprob has a gradient before the trainer asks for one")


def is_as_precise_as_its_inputs(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss of another type than the log-probabilities."""
    inputs = loss_inputs()
    loss, wanted = _loss(context.build(component), inputs), inputs["logprob"].dtype
    return None if loss.dtype == wanted else Finding(f"the loss is {loss.dtype}, not {wanted}")


def raises_what_was_good(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss whose step makes tokens with a positive advantage less likely."""
    function = context.build(component)
    if "advantages" not in field_names(function).values():
        raise Skipped("it uses no advantages")
    inputs = loss_inputs()
    inputs["expert_mask"] = torch.tensor(OF_EXPERTS)
    for name in ("old_logprob", "ref_logprob"):
        inputs[name] = inputs["logprob"].detach().clone()
    loss = _loss(function, inputs)
    gradient_BR = _gradient(loss, inputs) if loss.requires_grad else None
    if gradient_BR is None:
        raise Skipped("it has no gradient")
    own_BR = inputs["action_mask"] & ~inputs["expert_mask"][:, None]
    up = float(gradient_BR[own_BR & (inputs["advantages"] > 0)].sum())
    down = float(gradient_BR[own_BR & (inputs["advantages"] < 0)].sum())
    if up >= SLACK:
        return Finding("on policy, a step makes tokens with a positive advantage less likely")
    if down <= -SLACK:
        return Finding("on policy, a step makes tokens with a negative advantage more likely")
    return None


def _loss(function: Any, inputs: Inputs) -> Tensor:
    returned: Any = function(**arguments(inputs, field_names(function), whole=inputs))
    if not (isinstance(returned, tuple) and isinstance(returned[0], torch.Tensor)):
        raise Skipped("policy_loss_fn.scalar fails")
    loss: Tensor = returned[0]
    return loss


def _gradient(loss: Tensor, inputs: Inputs) -> Tensor | None:
    (gradient_BR,) = torch.autograd.grad(loss.sum(), [inputs["logprob"]], allow_unused=True)
    found: Tensor | None = gradient_BR
    return found


KINDS = frozenset({"policy_loss_fn"})
checks = (
    Check(
        id="policy_loss_fn.gradient",
        function=has_a_gradient,
        remedy="Compute the loss from logprob itself: no detach(), .item() or torch.no_grad().",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.backward",
        function=leaves_backward_to_the_trainer,
        remedy="Return the loss; the trainer weighs it and calls backward() once.",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.dtype",
        function=is_as_precise_as_its_inputs,
        remedy="Return the loss in the type of logprob: loss.to(logprob.dtype).",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.direction",
        function=raises_what_was_good,
        remedy="A loss is minimised: take minus advantage times log-probability. If yours means "
        "otherwise, name it in expected_failures with the reason.",
        kinds=KINDS,
    ),
)
