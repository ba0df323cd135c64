"""Compute activations again in the backward pass, instead of keeping them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import PreTrainedModel


def enable_checkpointing(module: PreTrainedModel) -> None:
    """Compute activations again in the backward pass; dropout stays off."""
    older_name = "gradient_checkpointing_enable"  # all that earlier releases of transformers 5 know
    enable = getattr(module, "activation_checkpointing_enable", None) or getattr(module, older_name)
    enable({"use_reentrant": False})
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if hasattr(part, "attention_dropout"):
            part.attention_dropout = 0.0


@contextmanager
def recomputing(module: PreTrainedModel) -> Iterator[None]:
    """Let activations be computed again where :func:`enable_checkpointing` asked for it.

    transformers does it in training mode only.
    """
    module.train(is_recomputing(module))
    try:
        yield
    finally:
        module.eval()


def is_recomputing(module: PreTrainedModel) -> bool:
    """Return whether :func:`enable_checkpointing` was asked for."""
    is_on = getattr(module, "is_activation_checkpointing", None)
    return bool(module.is_gradient_checkpointing if is_on is None else is_on)  # older name
