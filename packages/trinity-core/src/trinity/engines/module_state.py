"""How the module and torch are set for the engine."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SMALL_MODEL = 50_000_000  # parameters; below, threads wait for each other longer than they work


def twin_of(module: PreTrainedModel) -> PreTrainedModel:
    """Return a model on the same tensors that is in evaluation mode and takes no gradients.

    Whoever trains ``module`` changes the twin's weights with it, in place. How the engine sets the
    twin does not show there, also while a request that nobody waits for any more is being answered.

    A weight that requires a gradient lets ``matmul`` take another kernel, also where none is
    computed: the samples of the module itself would differ in the last bits from those of a copy.
    """
    hooks = [hook for part in module.modules() for hook in _hooks(part)]
    made: dict[int, Any] = {id(same): same for same in (*module.buffers(), *hooks)}
    for weight in module.parameters():
        made[id(weight)] = nn.Parameter(weight.detach(), requires_grad=False)
    twin = deepcopy(module, made)
    twin.train(mode=False)
    return twin


def _hooks(part: nn.Module) -> list[Any]:
    """Return what was hung on a part; a copy of a method would take its owner with it."""
    named = [held for name, held in vars(part).items() if name.endswith("_hooks")]
    return [hook for hooks in named if isinstance(hooks, dict) for hook in hooks.values()]


def set_threads(module: PreTrainedModel, num_threads: int | None) -> None:
    """Set how many threads torch uses in this process; None: 1 for a small model on a CPU."""
    if num_threads is None and module.device.type == "cpu":
        is_small = module.num_parameters() < _SMALL_MODEL
        num_threads = 1 if is_small else None
    if num_threads is not None:
        torch.set_num_threads(num_threads)
