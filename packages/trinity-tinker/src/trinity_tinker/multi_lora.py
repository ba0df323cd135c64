"""Adapters (LoRA) of many runs in one model: each row of a forward pass has its own, or none.

y = W x + B (mask * A x)     B rows   I inputs of a layer   O outputs   R ranks in use

The factors of the adapters in use stand beside each other, whatever their ranks: A ``[I, R]``,
B ``[R, O]``. The mask hides from each row the columns that are not its adapter's. Where all rows
have one adapter, there is no mask, and nothing but that adapter is computed with.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import nn
from trinity.engines.forward import RowAdapters
from trinity.errors import ModelError
from trinity.trainer.lora import FOLDER, WEIGHTS_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["Factors", "MultiLoRA", "read_factors"]

_IN_PEFT = "base_model.model."

Factors = dict[str, tuple["Tensor", "Tensor"]]  # by layer: A [I, r]; B [r, O], scaled


class MultiLoRA(RowAdapters):
    """Adapters by name; any thread may add and remove them, each selects for itself."""

    def __init__(self) -> None:
        self._known: dict[str, Factors] = {}
        self._layers: frozenset[str] | None = None  # of the model; None: there is none yet
        self._state = object()  # another one after each change
        self._of_thread = _Selection()

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __deepcopy__(self, _memo: object) -> MultiLoRA:
        """Return itself: copies of a model compute with the same adapters."""
        return self

    def put_into(self, module: PreTrainedModel) -> PreTrainedModel:
        """Let the linear layers of a model compute with the adapters; return the model."""
        named = module.named_modules()
        linear = {name: part for name, part in named if isinstance(part, nn.Linear)}
        for name, part in linear.items():
            module.set_submodule(name, _AdaptedLinear(part, name=name, adapters=self))
        self._layers = frozenset(linear)
        return module

    def add(self, name: str, factors: Factors) -> None:
        """Give rows of a name an adapter; rows that compute with one of this name get the new one.

        Raises:
            ModelError: the model has not all of its layers, or a number of it is not finite, which
                would spread to other rows.
        """
        for layer, pair in factors.items():
            if self._layers is not None and layer not in self._layers:
                raise ModelError(
                    f"the adapter is of a layer {layer}, which is no linear layer of this model: "
                    f"samples would be without it. Sample with the base model of the adapter."
                )
            if not all(bool(factor.isfinite().all()) for factor in pair):
                raise ModelError(
                    f"the adapter of {layer} holds numbers that are not finite: training diverged. "
                    f"Return to an earlier checkpoint, and lower the learning rate."
                )
        self._known[name] = factors
        self._state = object()

    def remove(self, name: str) -> None:
        """Forget an adapter; no row that somebody waits for computes with it."""
        del self._known[name]
        self._state = object()

    @contextmanager
    def of_rows(self, names: Sequence[str]) -> Iterator[None]:
        """Compute with these in the forwards of this thread; "", or one that is gone, is none."""
        mine = self._of_thread
        wanted = (tuple(names), self._state)
        if wanted != mine.wanted:
            mine.select(names, known=self._known)
            mine.wanted = wanted
        mine.layers = mine.selected
        try:
            yield
        finally:
            mine.layers = {}

    def delta(self, layer: str, inputs: Tensor) -> Tensor | None:
        """Return what the adapters of this thread's rows add to a layer's output; None: nothing."""
        share = self._of_thread.layers.get(layer)
        if share is None:
            return None
        inner = inputs.to(share.lower.dtype) @ share.lower
        if share.is_hidden_BR is not None:
            inner = _masked(inner, share.is_hidden_BR, layer=layer)
        return inner @ share.upper


class _Share(NamedTuple):
    """The factors of one layer that are in use, and which of their columns each row has."""

    lower: Tensor  # [I, R]
    upper: Tensor  # [R, O]
    is_hidden_BR: Tensor | None = None  # None: all rows have all columns


class _Stack(NamedTuple):
    """Factors of several adapters beside each other, and whose each column is."""

    adapters: dict[str, Factors]
    layers: dict[str, tuple[Tensor, Tensor, tuple[tuple[int, int], ...]]]

    def has(self, adapters: Mapping[str, Factors]) -> bool:
        return all(self.adapters.get(name) is factors for name, factors in adapters.items())


class _Selection(threading.local):
    """What the forwards of one thread compute with."""

    def __init__(self) -> None:
        self.layers: Mapping[str, _Share] = {}  # within a block
        self.selected: Mapping[str, _Share] = {}
        self.wanted: tuple[tuple[str, ...], object] | None = None
        self._stack = _Stack({}, {})

    def select(self, names: Sequence[str], *, known: Mapping[str, Factors]) -> None:
        # The adapter of a row that nobody waits for any more may be gone before the row is.
        used = {name: known[name] for name in sorted(set(names)) if name in known}
        if not used:
            self.selected = {}
        elif len(used) == len(set(names)) == 1:
            (factors,) = used.values()
            self.selected = {layer: _Share(*pair) for layer, pair in factors.items()}
        else:
            # A run whose last row ended stays in the stack: copying the others costs more.
            if not self._stack.has(used):
                self._stack = _stacked(used)
            self.selected = _shares(self._stack, names)


def _stacked(adapters: dict[str, Factors]) -> _Stack:
    having: dict[str, list[tuple[int, Tensor, Tensor]]] = {}
    for number, factors in enumerate(adapters.values()):
        for layer, pair in factors.items():
            having.setdefault(layer, []).append((number, *pair))
    layers = {
        layer: (
            torch.cat([lower for _, lower, _ in all_of_layer], dim=1),
            torch.cat([upper for _, _, upper in all_of_layer], dim=0),
            tuple((number, lower.shape[1]) for number, lower, _ in all_of_layer),
        )
        for layer, all_of_layer in having.items()
    }
    return _Stack(adapters, layers)


def _shares(stack: _Stack, names: Sequence[str]) -> dict[str, _Share]:
    numbers = {name: number for number, name in enumerate(stack.adapters)}
    of_row = torch.tensor([numbers.get(name, -1) for name in names])
    masks: dict[tuple[tuple[int, int], ...], Tensor] = {}  # most layers have the same
    shares = {}
    for layer, (lower, upper, owners) in stack.layers.items():
        if owners not in masks:
            number_R = torch.tensor([number for number, rank in owners for _ in range(rank)])
            masks[owners] = (of_row[:, None] != number_R).to(lower.device)
        shares[layer] = _Share(lower, upper, masks[owners])
    return shares


def _masked(inner: Tensor, is_hidden_BR: Tensor, *, layer: str) -> Tensor:
    """Return the products with 0 where they are of another row's adapter.

    Raises:
        ModelError: the layer's inputs are not those of the rows, one by one.
    """
    if len(inner) != len(is_hidden_BR):
        raise ModelError(
            f"{layer} gets {len(inner)} inputs for {len(is_hidden_BR)} rows, as a layer of experts "
            f"may: rows of different adapters cannot be told apart there. Train other layers."
        )
    return inner.masked_fill(is_hidden_BR if inner.dim() == 2 else is_hidden_BR[:, None], 0.0)


class _AdaptedLinear(nn.Module):
    """A linear layer, and what the adapters of the rows add to it."""

    def __init__(self, base: nn.Linear, *, name: str, adapters: MultiLoRA) -> None:
        super().__init__()
        self.base = base
        self._name = name
        self._adapters = adapters

    def __getattr__(self, name: str) -> Any:  # Any: of the layer
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base":
                raise
            return getattr(self.base, name)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.base(inputs)
        delta = self._adapters.delta(self._name, inputs)
        return output if delta is None else output + delta.to(output.dtype)


def read_factors(folder: Path, *, device: torch.device) -> Factors:
    """Return the adapter of a checkpoint's folder, which peft wrote."""
    config: dict[str, Any] = json.loads(
        (folder / FOLDER / "adapter_config.json").read_text("utf-8")
    )
    tensors = load_file(folder / FOLDER / WEIGHTS_FILE)
    factors: Factors = {}
    for name, lower in tensors.items():
        layer, found, _ = name.removeprefix(_IN_PEFT).partition(".lora_A.")
        if found:
            upper = tensors[name.replace(".lora_A.", ".lora_B.")].float()
            scaled = upper * (config["lora_alpha"] / config["r"])
            pair = (lower.float().T, scaled.T)
            factors[layer] = tuple(one.contiguous().to(device) for one in pair)
    return factors
