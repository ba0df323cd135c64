"""The keys and values of the rows being continued, in buffers written in place.

    row    |<------ width: prompts, right-aligned ------>|<- replies: one column a step ->|
    0      | . . . p p p p p p p p p p p p p p p p p p p | r r r r                         |
    1      | p p p p p p p p p p p p p p p p p p p p p p | r r r r                         |
                                                                   ^ column

A row that ended is overwritten by the last one: the rows in use are always the first ones, and the
model sees views of the buffers, from column ``first`` on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SlotCache"]


class _Slots:
    """What the layers share: which part of the buffers is in use."""

    def __init__(self, *, rows: int, width: int) -> None:
        self.rows = rows
        self.width = width
        self.first = 0
        self.column = width


class _SlotLayer(DynamicLayer):
    keys: Tensor
    values: Tensor

    def __init__(self, slots: _Slots, columns: int, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self._slots = slots
        self.keys = _buffer(slots, columns, keys)
        self.values = _buffer(slots, columns, values)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: object, **_kwargs: object
    ) -> tuple[Tensor, Tensor]:
        slots = self._slots
        column = slots.column
        keys, values = self.keys[: slots.rows], self.values[: slots.rows]
        keys[:, :, column] = key_states[:, :, 0]
        values[:, :, column] = value_states[:, :, 0]
        seen = slice(slots.first, column + 1)
        return keys[:, :, seen], values[:, :, seen]

    def get_seq_length(self) -> int:
        return self._slots.column

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        # transformers 5.0 gives the positions of the queries, later ones their number.
        num_queries = query_length if isinstance(query_length, int) else len(query_length)
        first = self._slots.first  # eager attention adds a mask even where nothing is hidden
        return self._slots.column + num_queries - first, first

    def fill(self, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        columns = slice(self._slots.width - keys.shape[2], self._slots.width)
        self.keys[rows, :, columns] = keys
        self.values[rows, :, columns] = values

    def move(self, targets: Tensor, sources: Tensor) -> None:
        seen = slice(self._slots.first, self._slots.column)
        self.keys[targets, :, seen] = self.keys[sources, :, seen]
        self.values[targets, :, seen] = self.values[sources, :, seen]

    def grow(self, columns: int) -> None:
        self.keys = _grown(self.keys, columns, self._slots)
        self.values = _grown(self.values, columns, self._slots)


class SlotCache(Cache):
    """A cache of transformers for rows that all stand at one column and end one by one."""

    def __init__(self, *, rows: int, width: int, columns: int) -> None:
        self._slot_layers: list[_SlotLayer] = []
        super().__init__(layers=self._slot_layers)  # type: ignore[arg-type]  # one list, two names
        self._slots = _Slots(rows=rows, width=width)
        self._columns = columns

    def fill(self, rows: Tensor, prompts: Tensor, prefilled: DynamicCache) -> None:
        """Copy the prompt ``prompts[i]`` of a prefilled cache to the slot ``rows[i]``."""
        for index, layer in enumerate(prefilled.layers):
            if not isinstance(layer, DynamicLayer) or layer.keys is None or layer.values is None:
                raise TypeError(f"layer {index} keeps no keys and values: {type(layer).__name__}")
            if index == len(self._slot_layers):
                room = min(self._columns, self._slots.width + _FIRST_STEPS)
                self._slot_layers.append(_SlotLayer(self._slots, room, layer.keys, layer.values))
            self._slot_layers[index].fill(rows, layer.keys[prompts], layer.values[prompts])

    def advance(self) -> None:
        """Go to the next column; the buffers grow where it lies beyond them."""
        self._slots.column += 1
        room = self._slot_layers[0].keys.shape[2]
        if self._slots.column == room:
            columns = min(self._columns, room + max(_FIRST_STEPS, room // 2))
            for layer in self._slot_layers:
                layer.grow(columns)

    def keep(self, order: Sequence[int]) -> None:
        """Go on with the slots of ``order``; most of them should stand where they stood."""
        moves = [(to, source) for to, source in enumerate(order) if to != source]
        if moves:
            device = self._slot_layers[0].keys.device
            targets, sources = torch.tensor(moves, device=device).unbind(1)
            for layer in self._slot_layers:
                layer.move(targets, sources)
        self._slots.rows = len(order)

    def skip_to(self, first: int) -> None:
        """Show the model nothing left of column ``first``."""
        self._slots.first = first


_FIRST_STEPS = 64


def _buffer(slots: _Slots, columns: int, like: Tensor) -> Tensor:
    buffer = like.new_empty(slots.rows, like.shape[1], columns, like.shape[3])
    buffer[:, :, : slots.width] = 0  # padding is masked, but 0 * NaN is NaN
    return buffer


def _grown(buffer: Tensor, columns: int, slots: _Slots) -> Tensor:
    rows, seen = slice(slots.rows), slice(slots.column)
    grown = buffer.new_empty(slots.rows, buffer.shape[1], columns, buffer.shape[3])
    grown[:, :, seen] = buffer[rows, :, seen]
    return grown
