"""How the module and torch are set while the engine computes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel

__all__ = ["evaluating", "set_threads"]

_SMALL_MODEL = 50_000_000  # parameters; below, threads wait for each other longer than they work


@contextmanager
def evaluating(module: PreTrainedModel) -> Iterator[None]:
    """Put the module into evaluation mode, without gradients, until the end of the block.

    A weight that requires a gradient lets ``matmul`` take another kernel, also where none is
    computed: the samples of a shared module would differ in the last bits from those of a copy.
    """
    is_training = module.training
    trained = [weight for weight in module.parameters() if weight.requires_grad]
    module.train(mode=False)
    for weight in trained:
        weight.requires_grad = False
    try:
        yield
    finally:
        for weight in trained:
            weight.requires_grad = True
        module.train(mode=is_training)


def set_threads(module: PreTrainedModel, num_threads: int | None) -> None:
    """Set how many threads torch uses in this process; None: 1 for a small model on a CPU."""
    if num_threads is None and module.device.type == "cpu":
        is_small = module.num_parameters() < _SMALL_MODEL
        num_threads = 1 if is_small else None
    if num_threads is not None:
        torch.set_num_threads(num_threads)
