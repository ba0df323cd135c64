"""Weights that travel from the trainer to the engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = ["WeightSnapshot", "WeightVersion"]

WeightVersion = NewType("WeightVersion", int)  # counts optimizer steps; 0 is the base model


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSnapshot:
    """The weights after ``version`` optimizer steps, by parameter name."""

    version: WeightVersion
    tensors: Mapping[str, Tensor]
