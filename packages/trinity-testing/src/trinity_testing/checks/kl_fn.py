"""What every divergence from the reference model must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.loss_inputs import Inputs, loss_inputs, spoilt
from trinity_testing.checks.numbers import HUGE, largest_difference, odd_metric

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.extend.component import Component

__all__ = ["checks"]

TOLERANCE = 1e-5
POLICY, REFERENCE = (0.5, 0.3, 0.2), (0.2, 0.3, 0.5)  # of a vocabulary of three tokens


def estimates_each_token(component: Component, context: CheckContext) -> Finding | None:
    """Find estimates of another shape or type than the log-probabilities, or that are no number."""
    inputs = loss_inputs()
    kl_BR = _estimates(context.build(component), inputs)
    wanted = inputs["logprob"]
    if kl_BR.shape != wanted.shape or kl_BR.dtype != wanted.dtype:
        return Finding(
            f"the estimates are {kl_BR.dtype} {list(kl_BR.shape)}, the log-probabilities "
            f"{wanted.dtype} {list(wanted.shape)}"
        )
    if not bool(kl_BR.isfinite().all()):
        return Finding("an estimate of ordinary log-probabilities is not finite")
    return None


def is_zero_where_nothing_differs(component: Component, context: CheckContext) -> Finding | None:
    """Find an estimate other than 0 where policy and reference agree."""
    inputs = loss_inputs()
    same = {name: inputs["logprob"].detach().clone() for name in ("ref_logprob", "old_logprob")}
    largest = float(_estimates(context.build(component), inputs | same).abs().max())
    if largest <= TOLERANCE:
        return None
    return Finding(f"where policy and reference agree, it estimates up to {largest:.3g} nats")


def is_positive_where_they_differ(component: Component, context: CheckContext) -> Finding | None:
    """Find an estimate whose mean over the policy is not above 0 where the reference differs."""
    function = context.build(component)
    if not function.needs_reference:
        raise Skipped("it compares with no reference")
    chance_V = torch.tensor(POLICY)
    logprob_BR, reference_BR = chance_V.log()[None], torch.tensor(REFERENCE).log()[None]
    fields = {"logprob": logprob_BR, "old_logprob": logprob_BR, "ref_logprob": reference_BR}
    kl_BR = _estimates(function, fields)
    if kl_BR.shape != logprob_BR.shape:
        raise Skipped("kl_fn.shape fails")
    mean = float((chance_V * kl_BR[0]).sum())
    if mean > TOLERANCE:
        return None
    exact = float((chance_V * (logprob_BR - reference_BR)[0]).sum())
    return Finding(f"of two distributions {exact:.2f} nats apart, its mean is {mean:.2f}")


def its_loss_is_masked_and_plain(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss that is no finite number, looks at masked tokens, or has odd metrics."""
    inputs = loss_inputs()
    plain, metrics = _loss(context.build(component), inputs)
    problem = odd_metric(metrics)
    if problem:
        return Finding(problem, remedy="Return plain floats as metrics.")
    if plain.dim() != 0 or not bool(plain.isfinite()):
        return Finding(f"its loss is {plain!s:.60}, not one finite number")
    other, _ = _loss(context.build(component), spoilt(inputs))
    difference = largest_difference(plain.detach(), other.detach())
    if difference > TOLERANCE:
        return Finding(f"{HUGE:g} at masked positions changes the loss by {difference:.3g}")
    return None


def _estimates(function: Any, inputs: Inputs) -> Tensor:
    kl_BR: Tensor = function.calculate_kl(
        inputs["logprob"], inputs["ref_logprob"], inputs["old_logprob"]
    )
    if not isinstance(kl_BR, torch.Tensor):
        raise TypeError(f"calculate_kl() must return a tensor, not {type(kl_BR).__name__}")
    return kl_BR.detach()


def _loss(function: Any, inputs: Inputs) -> tuple[Tensor, Any]:
    loss, metrics = function.calculate_kl_loss(
        logprob=inputs["logprob"],
        ref_logprob=inputs["ref_logprob"],
        response_mask=inputs["action_mask"],
        old_logprob=inputs["old_logprob"],
    )
    return loss, metrics


KINDS = frozenset({"kl_fn"})
checks = (
    Check(
        id="kl_fn.shape",
        function=estimates_each_token,
        remedy="Return one estimate for each token, of the shape and type of logprob.",
        kinds=KINDS,
    ),
    Check(
        id="kl_fn.zero",
        function=is_zero_where_nothing_differs,
        remedy="Let the estimate be a function of logprob - ref_logprob that is 0 at 0.",
        kinds=KINDS,
    ),
    Check(
        id="kl_fn.positive",
        function=is_positive_where_they_differ,
        remedy="Estimate KL(policy || reference): its mean over tokens of the policy is above 0.",
        kinds=KINDS,
    ),
    Check(
        id="kl_fn.masked",
        function=its_loss_is_masked_and_plain,
        remedy="Leave calculate_kl_loss() to KLFn, or select with the mask before any sum.",
        kinds=KINDS,
    ),
)
