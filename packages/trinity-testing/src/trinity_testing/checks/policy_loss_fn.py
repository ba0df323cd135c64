"""What every policy loss must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.loss_inputs import (
    Inputs,
    arguments,
    field_names,
    loss_inputs,
    padded,
    rows_of,
    spoilt,
)
from trinity_testing.checks.numbers import HUGE, largest_difference, odd_metric

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.extend.component import Component

__all__ = ["ZERO_FOR_ZERO_ADVANTAGES", "checks"]

ZERO_FOR_ZERO_ADVANTAGES = "zero_for_zero_advantages"  # a word of ComponentSpec.provides
TOLERANCE = 1e-5
FAR = 100.0  # log-ratio of a token with a wrong log-probability; exp(100) overflows
CUTS = ([[0, 1], [2, 3]], [[0, 1, 2], [3]], [[0], [1], [2], [3]])
PAIR_CUTS = ([[0, 1], [2, 3]],)


class Evaluation(NamedTuple):
    """A loss with its gradient."""

    loss: Tensor
    gradient_BR: Tensor
    metrics: Any


def is_a_scalar(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss that is no finite number with a gradient."""
    loss = _evaluate(component, context, loss_inputs()).loss
    if loss.dim() != 0:
        return Finding(f"the loss has the shape {list(loss.shape)}, not []")
    if not loss.isfinite():
        return Finding(f"the loss is {float(loss)}")
    return None


def has_a_finite_gradient(component: Component, context: CheckContext) -> Finding | None:
    """Find a gradient that is not finite: plainly, far off policy, or with nothing to learn."""
    for label, inputs in _hard_inputs().items():
        loss, gradient_BR, _ = _evaluate(component, context, inputs)
        if not loss.isfinite().all():
            return Finding(f"the loss of {label} is not finite")
        if not gradient_BR.isfinite().all():
            return Finding(f"the gradient of {label} is not finite")
    return None


def masked_tokens_have_no_influence(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss that looks at masked tokens, or teaches them."""
    inputs = loss_inputs()
    mask_BR = inputs["action_mask"]
    plain = _evaluate(component, context, inputs)
    if (plain.gradient_BR[~mask_BR] != 0).any():
        return Finding("a masked token has a gradient")
    return _compare(plain, _evaluate(component, context, spoilt(inputs)), mask_BR, _SPOILT)


def padding_changes_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a loss that depends on how wide the batch was padded."""
    inputs = loss_inputs()
    mask_BR = inputs["action_mask"]
    plain = _evaluate(component, context, inputs)
    wide = _evaluate(component, context, padded(inputs))
    narrow = wide._replace(gradient_BR=wide.gradient_BR[:, : mask_BR.shape[1]])
    return _compare(plain, narrow, mask_BR, "three columns of padding")


def zero_advantages_teach_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a gradient where every advantage is 0, in a loss that claims to have none."""
    if ZERO_FOR_ZERO_ADVANTAGES not in component.spec.provides:
        raise Skipped(f"it does not claim {ZERO_FOR_ZERO_ADVANTAGES!r}")
    if "advantages" not in field_names(context.build(component)).values():
        raise Skipped("it uses no advantages")
    inputs = loss_inputs()
    inputs["advantages"] = torch.zeros_like(inputs["advantages"])
    largest = float(_evaluate(component, context, inputs).gradient_BR.abs().max())
    if largest == 0:
        return None
    return Finding(f"with every advantage 0, the gradient reaches {largest:.3g}")


def micro_batches_give_the_same_gradient(
    component: Component, context: CheckContext
) -> Finding | None:
    """Find a loss whose pieces, weighed by its normalizer, do not add up to the whole."""
    function = context.build(component)  # one for all, as in the trainer
    normalizer = getattr(function, "normalizer", "tokens")
    inputs = loss_inputs()
    whole = _evaluated(function, inputs, whole=inputs)
    for cut in PAIR_CUTS if normalizer == "pairs" else CUTS:
        summed_BR = torch.zeros_like(whole.gradient_BR)
        for rows in cut:
            weight = _share(inputs["action_mask"], rows, normalizer)
            piece = _evaluated(function, rows_of(inputs, rows), whole=inputs)
            summed_BR[rows] += weight * piece.gradient_BR
        difference = largest_difference(whole.gradient_BR, summed_BR)
        if difference > TOLERANCE:
            sizes = "+".join(str(len(rows)) for rows in cut)
            return Finding(
                f"cut into {sizes} rows and weighed by {normalizer}, the gradient differs "
                f"by {difference:.3g}"
            )
    return None


def metrics_are_plain(component: Component, context: CheckContext) -> Finding | None:
    """Find metrics that are no plain finite floats."""
    problem = odd_metric(_evaluate(component, context, loss_inputs()).metrics)
    return Finding(problem) if problem else None


def _evaluate(component: Component, context: CheckContext, inputs: Inputs) -> Evaluation:
    return _evaluated(context.build(component), inputs, whole=inputs)


def _evaluated(function: Any, inputs: Inputs, *, whole: Inputs) -> Evaluation:
    result: Any = function(**arguments(inputs, field_names(function), whole=whole))
    if not (isinstance(result, tuple) and len(result) == 2):
        raise TypeError(f"it must return (loss, metrics), not {type(result).__name__}")
    loss, metrics = result
    if not isinstance(loss, torch.Tensor):
        raise TypeError(f"the loss must be a tensor, not {type(loss).__name__}")
    logprob = inputs["logprob"]
    gradient_BR = torch.zeros_like(logprob)
    if loss.requires_grad:
        (found,) = torch.autograd.grad(loss.sum(), [logprob], allow_unused=True)
        gradient_BR = gradient_BR if found is None else found
    return Evaluation(loss.detach(), gradient_BR, metrics)


def _hard_inputs() -> dict[str, Inputs]:
    far_above, far_below, empty = loss_inputs(), loss_inputs(), loss_inputs()
    for name in ("old_logprob", "ref_logprob"):
        far_above[name] = far_above[name].index_fill(1, torch.tensor([0]), -FAR)
        far_below[name] = far_below[name].index_fill(1, torch.tensor([0]), FAR)
    empty["action_mask"] = torch.zeros_like(empty["action_mask"])
    return {
        "an ordinary batch": loss_inputs(),
        "a batch with a token far likelier than it was": far_above,
        "a batch with a token far less likely than it was": far_below,
        "a batch with every token masked": empty,
    }


def _compare(plain: Evaluation, other: Evaluation, mask_BR: Tensor, cause: str) -> Finding | None:
    difference = largest_difference(plain.loss, other.loss)
    if difference > TOLERANCE:
        return Finding(f"{cause} changes the loss by {difference:.3g}")
    difference = largest_difference(plain.gradient_BR[mask_BR], other.gradient_BR[mask_BR])
    if difference > TOLERANCE:
        return Finding(f"{cause} changes the gradient by {difference:.3g}")
    if not other.gradient_BR.isfinite().all():
        return Finding(f"{cause} gives a masked token a gradient that is not finite")
    return None


def _share(mask_BR: Tensor, rows: list[int], normalizer: str) -> float:
    shares = {
        "tokens": float(mask_BR[rows].sum() / mask_BR.sum()),
        "rows": len(rows) / len(mask_BR),
        "pairs": len(rows) / len(mask_BR),
        "sum": 1.0,
    }
    if normalizer not in shares:
        raise ValueError(f"its normalizer is {normalizer!r}; known: {', '.join(shares)}")
    return shares[normalizer]


_SPOILT = f"{HUGE:g} at masked positions"
KINDS = frozenset({"policy_loss_fn"})
checks = (
    Check(
        id="policy_loss_fn.scalar",
        function=is_a_scalar,
        remedy="Aggregate over the masked tokens before you return.",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.finite_grad",
        function=has_a_finite_gradient,
        remedy="Clamp log-ratios before exp(), and divide by the mask's sum plus 1e-8.",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.masked",
        function=masked_tokens_have_no_influence,
        remedy="Select the inputs with the mask (torch.where) before any exp or product.",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.padding",
        function=padding_changes_nothing,
        remedy="Count tokens by the mask, never by the shape.",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.zero_advantage",
        function=zero_advantages_teach_nothing,
        remedy="Let each term be a multiple of the advantage; or do not claim "
        f"{ZERO_FOR_ZERO_ADVANTAGES!r} in ComponentSpec.provides.",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.microbatches",
        function=micro_batches_give_the_same_gradient,
        remedy="Set normalizer to what you divide by: tokens, rows, pairs, or sum.",
        kinds=KINDS,
    ),
    Check(
        id="policy_loss_fn.metrics_plain",
        function=metrics_are_plain,
        remedy="Return value.item() for each metric.",
        kinds=KINDS,
    ),
)
