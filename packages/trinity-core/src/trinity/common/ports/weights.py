"""Weights that travel from the trainer to the engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

__all__ = ["LORA_A", "LORA_B", "WeightSnapshot", "WeightVersion"]

LORA_A, LORA_B = ".lora_A", ".lora_B"
WeightVersion = NewType("WeightVersion", int)  # counts optimizer steps; 0 is the base model


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightSnapshot:
    """The weights after ``version`` optimizer steps, by parameter name.

    An engine that takes adapters gets, for each weight that has one, two factors by the name with
    ``LORA_A`` (``[r, in]``) and ``LORA_B`` (``[out, r]``, scaled) after it, and nothing else.
    """

    version: WeightVersion
    tensors: Mapping[str, Tensor]
