"""A few numbers of each tensor of a model, by which two copies of its weights are compared."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WeightDigest", "differing", "digest_of"]

#: By the name of a weight: its number format, and its values at places that the name decides.
WeightDigest = Mapping[str, tuple[str, tuple[float, ...]]]
NUM_PLACES = 4


def digest_of(tensors: Mapping[str, Tensor]) -> WeightDigest:
    """Return the digest of these weights; nothing is copied but the numbers."""
    import torch

    shown: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.numel():
            places = _places(name, tuple(tensor.shape))
            shown[name] = tensor.detach()[places].reshape(-1) if tensor.dim() else tensor[None]
    if not shown:
        return {}
    flat = torch.cat([values.double() for values in shown.values()]).tolist()  # one wait for a GPU
    digest, start = {}, 0
    for name, values in shown.items():
        end = start + len(values)
        digest[name] = str(tensors[name].dtype).removeprefix("torch."), tuple(flat[start:end])
        start = end
    return digest


def differing(given: WeightDigest, got: WeightDigest) -> list[str]:
    """Return the weights that both have and that differ, in the number format of ``got``."""
    import torch

    names = []
    for name, (dtype, values) in got.items():
        if name in given:
            kind = getattr(torch, dtype)
            wanted, own = (
                torch.tensor(one, dtype=torch.float64).to(kind) for one in (given[name][1], values)
            )
            if not torch.equal(wanted, own):
                names.append(name)
    return names


@cache
def _places(name: str, shape: tuple[int, ...]) -> tuple[list[int], ...]:
    draw = random.Random(name)
    return tuple([draw.randrange(size) for _ in range(NUM_PLACES)] for size in shape)
