"""KL functions, entropy losses, aggregation, masked statistics and the critic's loss."""

from __future__ import annotations

from functools import partial

from trinity.algorithm import ops
from trinity.algorithm.value_loss import clipped_value_loss
from trinity.common.batch import ExperienceBatch
from trinity.extend import get_manager

KL_OPTIONS = ("adaptive", "kl_coef", "target_kl", "horizon")


def implementation(case):
    """Return the function of the case's operation."""
    run = OPERATIONS.get(case["op"])
    return partial(run, case) if run else None


def calculate_kl(case, inputs):
    logprob = inputs["logprob"].requires_grad_()
    kl_fn = kl_function(case)
    kl = kl_fn.calculate_kl(logprob, inputs["ref_logprob"], inputs.get("old_logprob"))
    kl.sum().backward()
    return {"kl": kl, "grad_logprob_of_sum": logprob.grad}


def kl_loss(case, inputs):
    logprob = inputs["logprob"].requires_grad_()
    loss, metrics = kl_function(case).calculate_kl_loss(
        logprob,
        inputs["ref_logprob"],
        inputs["action_mask"],
        case["args"]["loss_agg_mode"],
        inputs.get("old_logprob"),
    )
    return {"loss": loss, "metrics": metrics, "grad_logprob": gradient(loss, logprob)}


def kl_penalty(case, inputs):
    kl_fn = kl_function(case)
    inputs["token_level_rewards"] = inputs.pop("token_level_scores")
    batch, metrics = kl_fn.apply_kl_penalty_to_reward(ExperienceBatch([], fields=inputs))
    return {
        "token_level_rewards": batch["token_level_rewards"],
        "metrics": metrics,
        "kl_coef_after": kl_fn.kl_coef,
    }


def kl_controller(case, inputs):
    options = {name: case["args"][name] for name in KL_OPTIONS if name in case["args"]}
    kl_fn = component("kl_fn", "k1", {"adaptive": case["fn"] == "adaptive"} | options)
    coefficients = []
    for current_kl in inputs["current_kl"]:
        kl_fn.update_kl_coef(current_kl, inputs["batch_size"])
        coefficients.append(kl_fn.kl_coef)
    return {"kl_coef_sequence": coefficients}


def entropy_loss(case, inputs):
    options = {"entropy_coef": case["args"]["entropy_coef"]}
    entropy_fn = component("entropy_loss_fn", case["fn"], options)
    entropy = inputs["entropy"].requires_grad_()
    named = {"expert_mask": inputs["expert_mask"]} if "expert_mask" in inputs else {}
    loss, metrics = entropy_fn(
        entropy, inputs["action_mask"], loss_agg_mode=case["args"]["loss_agg_mode"], **named
    )
    return {"loss": loss, "metrics": metrics, "grad_entropy": gradient(loss, entropy)}


def aggregate_loss(case, inputs):
    values = inputs["values"].requires_grad_()
    loss = ops.aggregate_loss(values, inputs["mask"], **case["args"])
    return {"loss": loss, "grad_values": gradient(loss, values)}


def masked_statistic(case, inputs):
    values, mask = inputs["values"], inputs["mask"]
    statistics = {
        "masked_mean": lambda: ops.masked_mean(values, mask),
        "masked_mean_axis-1": lambda: ops.masked_mean(values, mask, -1),
        "masked_sum": lambda: ops.masked_sum(values, mask),
        "masked_sum_axis-1": lambda: ops.masked_sum(values, mask, -1),
        "masked_var_unbiased": lambda: ops.masked_var(values, mask),
        "masked_var_biased": lambda: ops.masked_var(values, mask, unbiased=False),
        "masked_whiten": lambda: ops.masked_whiten(values, mask),
        "masked_whiten_noshift": lambda: ops.masked_whiten(values, mask, shift_mean=False),
    }
    return {"value": statistics[case["fn"]]()}


def value_loss(case, inputs):
    values = inputs["vpreds"].requires_grad_()
    loss, metrics = clipped_value_loss(
        values,
        old_values_BR=inputs["values"],
        returns_BR=inputs["returns"],
        mask_BR=inputs["action_mask"],
        clip_range=case["args"]["cliprange_value"],
        loss_agg_mode=case["args"]["loss_agg_mode"],
    )
    return {"loss": loss, "metrics": metrics, "grad_vpreds": gradient(loss, values)}


def kl_function(case):
    options = {name: case["args"][name] for name in KL_OPTIONS if name in case["args"]}
    return component("kl_fn", case["fn"], options)


def component(kind, name, arguments):
    return get_manager().load(kind, name)(**arguments)


def gradient(loss, of):
    """Return the gradient, 0 where the loss does not depend on it."""
    (loss + 0.0 * of.nan_to_num(0.0, 0.0, 0.0).clamp(-9, 9).sum()).backward()
    return of.grad


OPERATIONS = {
    "calculate_kl": calculate_kl,
    "kl_loss": kl_loss,
    "kl_penalty_to_reward": kl_penalty,
    "kl_controller": kl_controller,
    "entropy_loss": entropy_loss,
    "aggregate_loss": aggregate_loss,
    "masked_stat": masked_statistic,
    "value_loss": value_loss,
}
