"""Attention over sequences that several ranks hold parts of.

    all heads of a rank's tokens --> all-to-all --> a part of the heads of all tokens --> back

Key-value heads that are too few for the ranks are repeated. Both gloo and nccl have the all-to-all
that this takes (``all_to_all_single``).

P packs   H heads of this rank's tokens   h of them after the exchange   l tokens of a rank
T tokens of all   S ranks   D width of a head
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.autograd import Function
from torch.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_UNKNOWN = ("softcap", "s_aux", "position_bias")  # what changes the products, in transformers


class SharedAttention:
    """Attention over all tokens, by a part of the heads, between two exchanges.

    Args:
        group: the ranks of a sequence.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
        self._size = distributed.get_world_size(group)

    def __call__(  # noqa: PLR0913 -- as transformers calls it
        self,
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        *,
        scaling: float | None = None,
        dropout: float = 0.0,
        **others: Any,  # Any: whatever else a model gives
    ) -> tuple[Tensor, None]:
        """Return ``[P, l, H, D]``, and no weights.

        Args:
            module: the model's layer.
            query: ``[P, H, l, D]``, as key and value are, which may have fewer heads, and tokens
                before: those of one stem, the same for all packs.
            key: see query.
            value: see query.
            attention_mask: of all tokens; None: each sees those before it.
            scaling: of the products.
            dropout: 0.
            **others: nothing that changes the numbers.

        Raises:
            ValueError: the model wants more than this.
        """
        wanted = [name for name in _UNKNOWN if others.get(name) is not None]
        if wanted or dropout:
            raise ValueError(f"its attention has {', '.join(wanted or ['dropout'])}")
        num_past = key.shape[2] - query.shape[2]
        of_heads = self._exchanged(query)
        keys, values = (self._with_past(part, num_past, of_heads) for part in (key, value))
        found = scaled_dot_product_attention(
            of_heads,
            keys,
            values,
            attn_mask=attention_mask,
            is_causal=attention_mask is None,
            scale=scaling,
        )
        own = self._exchanged(found, to_heads=False)
        return own.transpose(1, 2).contiguous(), None

    def _exchanged(self, values: Tensor, *, to_heads: bool = True) -> Tensor:
        found: Tensor = _Exchange.apply(values, to_heads, self._group)  # type: ignore[no-untyped-call]
        return found

    def _with_past(self, values: Tensor, num_past: int, query: Tensor) -> Tensor:
        """Return keys or values of all tokens, for each of the query's heads."""
        times = self._size // gcd(self._size, values.shape[1])  # the fewest that divide
        values = values.repeat_interleave(times, dim=1) if times > 1 else values
        own = self._exchanged(values[:, :, num_past:])
        if num_past:  # of one stem: it travels once
            past = self._exchanged(values[:1, :, :num_past])
            own = torch.cat((past.expand(len(own), -1, -1, -1), own), dim=2)
        times = query.shape[1] // own.shape[1]
        return own.repeat_interleave(times, dim=1) if times > 1 else own


class _Exchange(Function):
    """Give tokens for heads, or heads for tokens; the gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, to_heads: bool, group: ProcessGroup) -> Tensor:  # noqa: FBT001
        """Return ``[P, h, T, D]`` of ``[P, H, l, D]``, or the reverse."""
        ctx.to_heads, ctx.group = to_heads, group
        return _exchanged(values, to_heads=to_heads, group=group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient of what was given."""
        own = _exchanged(gradients[0], to_heads=not ctx.to_heads, group=ctx.group)
        return own, None, None


def _exchanged(values: Tensor, *, to_heads: bool, group: ProcessGroup) -> Tensor:
    size = distributed.get_world_size(group)
    packs, heads, tokens, width = values.shape
    if to_heads:
        own_SPhlD = values.view(packs, size, heads // size, tokens, width).transpose(0, 1)
    else:
        own_SPhlD = values.view(packs, heads, size, tokens // size, width).permute(2, 0, 1, 3, 4)
    own_SPhlD = own_SPhlD.contiguous()
    found_SPhlD = torch.empty_like(own_SPhlD)
    distributed.all_to_all_single(found_SPhlD, own_SPhlD, group=group)
    if to_heads:
        return found_SPhlD.permute(1, 2, 0, 3, 4).reshape(packs, heads // size, -1, width)
    return found_SPhlD.transpose(0, 1).reshape(packs, heads * size, -1, width)
