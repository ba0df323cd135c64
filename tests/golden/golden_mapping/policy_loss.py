"""Policy losses: loss, metrics and the gradient in the log-probabilities."""

from __future__ import annotations

from functools import partial

from trinity.algorithm.fields import arguments_from
from trinity.common.batch import Fields
from trinity.extend import get_manager

from golden_mapping.kl_entropy import gradient


def implementation(case):
    """Return the loss that the case names."""
    if case["fn"] not in get_manager().names("policy_loss_fn"):
        return None
    return partial(_run, case)


def _run(case, inputs):
    loss_fn = get_manager().load("policy_loss_fn", case["fn"])(**case["args"])
    if case.get("verdict") == "constructor":
        return {"ok": True}
    logprob = inputs["logprob"].requires_grad_()
    loss, metrics = loss_fn(**arguments_from(loss_fn, Fields(inputs)))
    return {"loss": loss, "metrics": metrics, "grad_logprob": gradient(loss, logprob)}
