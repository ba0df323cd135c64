"""Weights that travel from the trainer to the engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LORA_A", "LORA_B", "TensorStream", "WeightSnapshot", "WeightVersion"]

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

    @property
    def like(self) -> Mapping[str, Tensor]:
        """Return tensors of the same names, types and shapes; their values do not count."""
        return self.tensors.like if isinstance(self.tensors, TensorStream) else self.tensors

    def __enter__(self) -> WeightSnapshot:
        return self

    def __exit__(self, *error: object) -> None:
        """Make what was not read of a stream: other ranks may wait for this one there."""
        if isinstance(self.tensors, TensorStream):
            self.tensors.drain()


class TensorStream(Mapping[str, "Tensor"]):
    """Tensors that are made when they are read, so that nobody holds all of them.

    Args:
        like: by name, in order: what each will be, on torch's device ``meta``.
        make: makes the tensor of a name.
        is_gathered: ranks make each together: all are to be read, once and in their order.
    """

    def __init__(
        self, like: Mapping[str, Tensor], make: Callable[[str], Tensor], *, is_gathered: bool = True
    ) -> None:
        self.like, self._make, self._is_gathered = like, make, is_gathered
        self._left = iter(like if is_gathered else ())

    @classmethod
    def rounded(
        cls, snapshot: WeightSnapshot, dtype: str | None, make: Callable[[str, Tensor], Tensor]
    ) -> WeightSnapshot:
        """Return the weights as engines of this number format hold them, each rounded when read.

        Adapters of LoRA stay as they are: engines add them to the base model in float32.

        Args:
            snapshot: of the trainer.
            dtype: ``bfloat16`` or ``float16``: weights in float32 are rounded.
            make: makes of a name and a rounded tensor what is read.
        """
        import torch

        short = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(dtype or "")
        like = {
            name: torch.empty(
                one.shape,
                device="meta",
                dtype=short
                if short and one.dtype == torch.float32 and not name.endswith((LORA_A, LORA_B))
                else one.dtype,
            )
            for name, one in snapshot.like.items()
        }
        tensors = snapshot.tensors
        stream = cls(like, lambda name: make(name, tensors[name].detach().to(like[name].dtype)))
        return WeightSnapshot(version=snapshot.version, tensors=stream)

    def __getitem__(self, name: str) -> Tensor:
        expected = next(self._left, None) if self._is_gathered else name
        if expected != name:
            raise LookupError(f"the stream is at {expected!r}, not {name!r}")
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self.like

    def __iter__(self) -> Iterator[str]:
        return iter(self.like)

    def __len__(self) -> int:
        return len(self.like)

    def drain(self) -> None:
        """Make those that are left, for the other ranks."""
        for name in self._left:
            self._make(name)
