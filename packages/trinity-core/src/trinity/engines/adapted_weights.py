"""Weights that come whole, or as adapters of the base model (LoRA, arXiv 2106.09685).

name          as it is in the model: all weights are replaced
name.lora_A   [r, in] and
name.lora_B   [out, r], scaled: the weight becomes base + lora_B lora_A, the others stay
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trinity.common.ports.trainer import digest_of
from trinity.common.ports.weights import LORA_A, LORA_B
from trinity.engines.model import copy_weights
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor, nn

    from trinity.common.ports.trainer import WeightDigest


class AdaptedWeights:
    """Loads weights into a model; of those with an adapter it keeps the base model's.

    Args:
        module: the base model, as it was read.
        read_again: reads it once more, where its weights were replaced meanwhile.
    """

    def __init__(self, module: nn.Module, *, read_again: Callable[[], nn.Module]) -> None:
        self._module, self._read_again = module, read_again
        self._is_base = True  # nothing was loaded
        self._base: dict[str, Tensor] = {}  # of the weights with an adapter
        self._digest: WeightDigest | None = None  # of adapters that were loaded last

    def digest(self) -> WeightDigest:
        """Return the digest of what was loaded last, in the form in which it came."""
        return self._digest or digest_of(dict(self._module.named_parameters()))

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the weights; all of the tensors fit, or nothing is changed.

        Of a ``TensorStream`` that breaks off, those that came stay.

        Raises:
            ModelError: they are of another model.
        """
        if not any(name.endswith((LORA_A, LORA_B)) for name in tensors):
            self._is_base, self._digest = False, None  # whatever becomes of a part of them
            copy_weights(self._module, tensors)
            return
        tensors = dict(tensors)
        names = [name.removesuffix(LORA_A) for name in tensors if name.endswith(LORA_A)]
        targets = self._module.state_dict(keep_vars=True)
        for name in names:
            _check(name, targets.get(name), tensors)
        if len(tensors) != 2 * len(names) or self._base.keys() not in (set(), set(names)):
            raise ModelError("the snapshot holds adapters of other layers than the one before.")
        if not self._base:
            source = self._module if self._is_base else self._read_again()
            weights = source.state_dict()
            self._base = {name: weights[name].clone() for name in names}
        for name, base in self._base.items():
            a, b = (tensors[name + end].to(base.device).float() for end in (LORA_A, LORA_B))
            targets[name].copy_(base.float() + b @ a)
        self._is_base, self._digest = False, digest_of(tensors)


def _check(name: str, target: Tensor | None, tensors: Mapping[str, Tensor]) -> None:
    shapes = [
        tuple(one.shape) for end in (LORA_B, LORA_A) if (one := tensors.get(name + end)) is not None
    ]
    fits = target is not None and len(shapes) == 2 and shapes[0][1] == shapes[1][0]
    if not fits or tuple(target.shape) != (shapes[0][0], shapes[1][1]):
        raise ModelError(
            f"the snapshot holds an adapter of {name!r}, of shapes {shapes}, which does not fit "
            "the engine's model. Trainer and engine need the same model_path."
        )
