"""A policy loss that the service computes (``model.tinker.server_loss_fn``): one pass, not two.

    experiences -> advantages, times each token's weight in the mean -> forward_backward (service)

The losses of the service are sums over tokens that are linear in the advantages, so that a weight
of each token gives each mean of the algorithm. B rows of a batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from trinity.algorithm.ops import aggregate_loss
from trinity.common.batch import ALIASES
from trinity.errors import DataError, unknown_name

from trinity_tinker.client.scorer import datums_of

if TYPE_CHECKING:
    from torch import Tensor
    from trinity.common.batch import ExperienceBatch
    from trinity.trainer.algorithm_parts import AlgorithmParts

__all__ = ["SERVER_LOSSES", "clip_of", "refused_loss", "token_weights", "weighted_datums"]

SERVER_LOSSES = ("importance_sampling", "ppo", "cispo")
_KEY = "model.tinker.server_loss_fn"
_FIELDS = {"logprob", "old_logprob", "advantages", "action_mask"}


def refused_loss(name: str, parts: AlgorithmParts) -> list[str]:
    """Return why the service cannot compute an algorithm's loss by that name, a line each."""
    if name not in SERVER_LOSSES:
        return [unknown_name(_KEY, name, SERVER_LOSSES)]
    found = []
    keys = {ALIASES.get(key, key) for key in parts.policy_loss_fn.select_keys}
    if "advantages" not in keys or keys - _FIELDS:
        found.append(
            f"{_KEY} is {name!r}, which takes the place of a policy loss on advantages, and "
            f"algorithm.policy_loss_fn reads {', '.join(sorted(keys))}. Leave {_KEY} out."
        )
    for path, part in (
        ("kl_loss_fn", parts.kl_loss_fn),
        ("rollout_correction", parts.rollout_correction),
    ):
        if part is not None:
            found.append(
                f"algorithm.{path}: the service computes {name} alone. Turn it off, or leave "
                f"{_KEY} out."
            )
    return found


def clip_of(name: str, parts: AlgorithmParts) -> dict[str, float] | None:
    """Return the settings of the service's loss: the clip range of the algorithm, if it has one."""
    low, high = (
        getattr(parts.policy_loss_fn, f"clip_range_{one}", None) for one in ("low", "high")
    )
    if name == "importance_sampling" or low is None or high is None:
        return None
    return {"clip_low_threshold": 1.0 - low, "clip_high_threshold": 1.0 + high}


def token_weights(parts: AlgorithmParts, mask_BR: Tensor) -> Tensor:
    """Return how much each token's loss counts in the loss of the batch ``[B, R]``."""
    mode = getattr(parts.policy_loss_fn, "loss_agg_mode", parts.loss_agg_mode)
    losses_BR = torch.zeros(mask_BR.shape).requires_grad_()
    (weight_BR,) = torch.autograd.grad(aggregate_loss(losses_BR, mask_BR.bool(), mode), losses_BR)
    return weight_BR


def weighted_datums(parts: AlgorithmParts, batch: ExperienceBatch) -> list[Any]:  # Any: a Datum
    """Return each row with its sampled log-probabilities and weighted advantages.

    Raises:
        DataError: the rows lack one of them.
    """
    for field in ("old_logprob", "advantages"):
        if field not in batch:
            raise DataError(f"{_KEY} needs {field}, and the experiences have none.")
    weight_BR = token_weights(parts, batch["action_mask"]) * batch["action_mask"]
    advantages_BR = batch["advantages"] * weight_BR
    old_BR = batch.batch.get("sampled_logprob", batch["old_logprob"])
    return datums_of(batch.experiences, {"advantages": advantages_BR, "logprobs": old_BR})
