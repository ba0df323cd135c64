"""What a CPU computes faster than by default, with any decoder of transformers.

* Attention of one query a row as two batched products: the flash kernel of PyTorch is made for many
  queries, and with a mask transformers copies grouped keys and values for every step. A model
  whose code asks for ``sdpa`` by name keeps its own: it would take another way.
* ``nn.Linear`` in float32 through oneDNN, which is up to twice as fast as the default on AMD.
* RMS norms in one call, where that is the same to the last bit.
* Parts of the model that have no hooks are called without the search for hooks.

All hold while the engine computes, and only there.
"""

from __future__ import annotations

import inspect
import re
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from transformers import PreTrainedConfig, PreTrainedModel

_NAME = "trinity_decode"
_WORTH_IT = 2**20  # products; below, oneDNN's fixed cost of a call is more than it saves
_ASKS_FOR_SDPA = re.compile(r"_attn_implementation\b.*[\"']sdpa[\"']")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class CpuKernels:
    """Lets one model compute in the ways above; on another device than a CPU, as it is."""

    def __init__(self, module: PreTrainedModel) -> None:
        self._module = module
        self._is_on_cpu = module.device.type == "cpu"
        self._same_norms = _same_norms(module) if self._is_on_cpu else {}
        self._has_own_attention = self._is_on_cpu and _asks_for_sdpa(module)

    @property
    def has_attention(self) -> bool:
        """Return whether the attention above applies."""
        return self._is_on_cpu and any(name == "sdpa" for _, name in self._attentions())

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Compute so until the end of the block."""
        if not self._is_on_cpu:
            yield
            return
        attentions = self._attentions()
        places = [
            (parent, name, _Direct(part, self._shortcut(part)))
            for parent, name, part in _parts_without_hooks(self._module)
        ]
        for config, name in attentions:
            config._attn_implementation = _NAME if name == "sdpa" else name
        for parent, name, direct in places:
            parent.__dict__[name] = direct
        try:
            yield
        finally:
            for config, name in attentions:
                config._attn_implementation = name
            for parent, name, _ in places:
                del parent.__dict__[name]

    def _attentions(self) -> list[tuple[PreTrainedConfig, str]]:
        """Return the configs with the name of their attention, each before those in it.

        A name that is set holds for the configs in it too, so each has to be set.
        """
        if self._has_own_attention:
            return []
        found: dict[int, tuple[PreTrainedConfig, str]] = {}
        for part in self._module.modules():
            config = getattr(part, "config", None)
            name = getattr(config, "_attn_implementation", None)
            if config is not None and name is not None:
                found[id(config)] = (config, name)
        return list(found.values())

    def _shortcut(self, part: nn.Module) -> Callable[..., Any]:
        """Return what is called instead of the part (Any: as the part)."""
        if type(part) is nn.Linear:
            is_float32 = part.weight.dtype == torch.float32 and _HAS_ONEDNN
            return partial(
                _linear if is_float32 else functional.linear, weight=part.weight, bias=part.bias
            )
        if part in self._same_norms:
            return self._same_norms[part]
        return part.forward


class _Direct:
    """Stands for a part of the model: a call goes straight to what computes."""

    __slots__ = ("_call", "_part")

    def __init__(self, part: nn.Module, call: Callable[..., Any]) -> None:
        self._part = part
        self._call = call

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return self._call(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def attend(  # noqa: PLR0913, PLR0917 -- the interface of transformers
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Return what ``sdpa`` of transformers returns, sooner for one query a row.

    The options (Any) are each model's own.

    Shapes: query ``[B, H, 1, D]``, key and value ``[B, K, S, D]``; the output is ``[B, 1, H, D]``.
    """
    num_rows, num_heads, num_queries, width = query.shape
    is_special = options.get("position_bias") is not None or torch.is_grad_enabled()
    if num_queries != 1 or is_special:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
    scaling = width**-0.5 if scaling is None else scaling
    grouped = (query * scaling).view(num_rows, key.shape[1], -1, width)
    scores = torch.matmul(grouped, key.transpose(2, 3))
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores.masked_fill_(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores.add_(attention_mask)
    mixed = torch.matmul(torch.softmax(scores, dim=-1), value)
    return mixed.view(num_rows, 1, num_heads, value.shape[3]), None


def _linear(inputs: Tensor, *, weight: Tensor, bias: Tensor | None) -> Tensor:
    if inputs.numel() * weight.shape[0] < _WORTH_IT or torch.is_grad_enabled():
        return functional.linear(inputs, weight, bias)
    output: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return output


def _norm(inputs: Tensor, *, weight: Tensor, epsilon: float) -> Tensor:
    return functional.rms_norm(inputs, weight.shape, weight, epsilon)


def _asks_for_sdpa(module: nn.Module) -> bool:
    """Return whether the model computes otherwise, or masks otherwise, by that very name."""
    files = {type(part).__module__ for part in module.modules()}
    own = [name for name in files if not name.startswith("torch.")]
    return any(_ASKS_FOR_SDPA.search(_source(name)) for name in own)


def _source(name: str) -> str:
    """Return the source of a Python module, empty if there is none."""
    try:
        return inspect.getsource(sys.modules[name])
    except (KeyError, OSError, TypeError):
        return ""


def _parts_without_hooks(module: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    """Return every part that its parent calls by name, with the parent and the name."""
    return [
        (parent, name, part)
        for parent in module.modules()
        if not isinstance(parent, nn.ModuleList | nn.ModuleDict | nn.Sequential)
        for name, part in parent.named_children()
        if type(part).__call__ is nn.Module.__call__
        and not isinstance(part, nn.ModuleList | nn.ModuleDict)
        and not any(getattr(part, hooks) for hooks in _HOOKS)
    ]


@torch.no_grad()
def _same_norms(module: nn.Module) -> dict[nn.Module, Callable[[Tensor], Tensor]]:
    """Return the RMS norm of PyTorch for the parts that compute the same, tried with numbers."""
    norms: dict[nn.Module, Callable[[Tensor], Tensor]] = {}
    for part in module.modules():
        weight = getattr(part, "weight", None)
        epsilon = getattr(part, "variance_epsilon", getattr(part, "eps", None))
        if "RMSNorm" not in type(part).__name__ or weight is None or epsilon is None:
            continue
        norm = partial(_norm, weight=weight, epsilon=epsilon)
        sample = torch.linspace(-2.0, 3.0, 3 * weight.numel()).view(3, -1)
        if weight.dtype == torch.float32 and torch.equal(part(sample), norm(sample)):
            norms[part] = norm
    return norms


_HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")
AttentionInterface.register(_NAME, attend)
AttentionMaskInterface.register(_NAME, sdpa_mask)
