"""Find what a golden case is about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golden_mapping import (
    advantage,
    algorithm_types,
    kl_entropy,
    policy_loss,
    queues,
    sample_strategy,
)

__all__ = ["implementation"]

Run = Callable[[dict[str, Any]], dict[str, Any]]

_FILES = {
    "policy_loss": (policy_loss,),
    "advantage": (advantage,),
    "kl_entropy": (kl_entropy,),
    "sample_strategy": (sample_strategy, queues),
    "algorithm_types": (algorithm_types,),
}


def implementation(case: dict[str, Any]) -> Run | None:
    """Return what computes the case's outputs from its inputs; None: nothing of ours does."""
    for module in _FILES.get(case["file"], ()):
        run: Run | None = module.implementation(case)
        if run is not None:
            return run
    return None
