"""Turn gradients into better weights."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from trinity.errors import ConfigError
from trinity.trainer.dtensor import full_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from trinity.common.config.algorithm import OptimizerConfig
    from trinity.trainer.offload import Offload


def make_optimizer(
    parameters: Iterable[nn.Parameter], config: OptimizerConfig
) -> torch.optim.AdamW:
    """Return AdamW over the parameters, fused: one kernel for all of them.

    Raises:
        ConfigError: another optimizer is asked for.
    """
    if config.optimizer_type not in {"adam", "adamw"}:
        raise ConfigError(
            f"algorithm.optimizer.optimizer_type is {config.optimizer_type!r}; "
            "the torch trainer has adam (which means AdamW). Use adam, or another trainer."
        )
    first, second = config.betas
    return torch.optim.AdamW(
        parameters,
        lr=config.lr,
        betas=(first, second),
        weight_decay=config.weight_decay,
        fused=True,
    )


def apply_gradients(
    optimizer: torch.optim.Optimizer, *, max_norm: float, lr: float, offload: Offload | None
) -> float:
    """Return the norm of the gradients; make a step with them, clipped, if it is a finite number.

    Args:
        optimizer: whose gradients are dropped after the step.
        max_norm: 0: they are not clipped.
        lr: learning rate of this step.
        offload: of the optimizer's states; None: they stay where they are.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = nn.utils.clip_grad_norm_(parameters, max_norm or math.inf)
    value = (full_tensor(norm) if isinstance(norm, DTensor) else norm).item()
    if math.isfinite(value):
        for group in optimizer.param_groups:
            group["lr"] = lr
        with states_here(optimizer, offload):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return value


def states_here(
    optimizer: torch.optim.Optimizer, offload: Offload | None
) -> AbstractContextManager[None]:
    """Return the block in which the optimizer's states are where they are used."""
    return nullcontext() if offload is None else offload.states(optimizer)


def make_lr_schedule(config: OptimizerConfig, *, total_steps: int) -> Callable[[int], float]:
    """Return the learning rate of each step, steps counted from 0.

    Raises:
        ConfigError: a decaying schedule without a known number of steps.
    """
    kind = config.lr_scheduler_type
    if kind != "constant" and total_steps <= 0:
        raise ConfigError(
            f"algorithm.optimizer.lr_scheduler_type is {kind!r}, which needs to know the number of "
            "steps. Set trainer.total_steps, or use constant."
        )
    warmup = config.lr_warmup_steps
    if warmup < 0:
        warmup = int(config.lr_warmup_steps_ratio * total_steps)

    def lr(step: int) -> float:
        factor = lr_factor(
            step, kind=kind, warmup=warmup, total_steps=total_steps, lowest=config.min_lr_ratio
        )
        return config.lr * factor

    return lr


def lr_factor(step: int, *, kind: str, warmup: int, total_steps: int, lowest: float) -> float:
    """Return the learning rate of a step as a part of the full one.

    It rises to 1 over the warmup steps; then it is constant, or falls to ``lowest`` at the last
    step, in a line or along half a cosine.

    >>> [lr_factor(s, kind="linear", warmup=2, total_steps=6, lowest=0.0) for s in (0, 1, 2, 4, 6)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return (step + 1) / warmup
    if kind == "constant":
        return 1.0
    progress = min((step - warmup) / max(total_steps - warmup, 1), 1.0)
    shape = 1.0 - progress if kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return lowest + (1.0 - lowest) * shape
