"""The keys and values of the rows being continued, in buffers written in place.

    slot   | first                                        column |         column_capacity
    0      | . . . . . . . p p p p p p p p p r r r r r r r r r r |                    |
    1      | p p p p p p p p p p r r r r r r r r r r r r r r r r |                    |
    2      | . . . . . . . . . . . . . . . . . . p p p p p p r r |    joined later    |

All rows end at one column, so that a step writes one column and the model sees a view. A row that
joins is put before that column; a row that ended is overwritten by the last one; at the end of the
buffers, what is still seen moves to the left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST_ROOM = 64  # columns for replies in a new buffer


@dataclass(kw_only=True, slots=True)
class _SharedState:
    """What the layers share: which part of the buffers is in use."""

    rows: int = 0
    first: int = 0
    column: int = 0
    row_capacity: int = 0
    column_capacity: int = 0
    is_transposed: bool = False


class _SlotLayer(DynamicLayer):
    keys: Tensor
    values: Tensor

    def __init__(self, place: _SharedState, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self._place = place
        self.keys = self._new_keys(keys)
        self.values = _zeros(place, values)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: object, **_kwargs: object
    ) -> tuple[Tensor, Tensor]:
        place = self._place
        keys, values = self.keys[: place.rows], self.values[: place.rows]
        keys[:, :, place.column] = key_states[:, :, 0]
        values[:, :, place.column] = value_states[:, :, 0]
        seen = slice(place.first, place.column + 1)
        return keys[:, :, seen], values[:, :, seen]

    def get_seq_length(self) -> int:
        return self._place.column - self._place.first

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        # transformers 5.0 gives the positions of the queries, later ones their number.
        num_queries = query_length if isinstance(query_length, int) else len(query_length)
        return self.get_seq_length() + num_queries, 0

    def put(self, rows: slice, keys: Tensor, values: Tensor) -> None:
        columns = slice(self._place.column - keys.shape[2], self._place.column)
        self.keys[rows, :, columns] = keys
        self.values[rows, :, columns] = values

    def copy_rows(self, targets: Tensor, sources: Tensor) -> None:
        seen = slice(self._place.first, self._place.column)
        self.keys[targets, :, seen] = self.keys[sources, :, seen]
        self.values[targets, :, seen] = self.values[sources, :, seen]

    def wipe(self, row: int) -> None:
        self.keys[row] = 0
        self.values[row] = 0

    def rebuild(self, seen: slice, column: int) -> None:
        """Copy what is seen to new buffers, up to ``column``."""
        rows, target = slice(self._place.rows), slice(column - seen.stop + seen.start, column)
        old_keys, self.keys = self.keys, self._new_keys(self.keys)
        self.keys[rows, :, target] = old_keys[rows, :, seen]
        old_values, self.values = self.values, _zeros(self._place, self.values)
        self.values[rows, :, target] = old_values[rows, :, seen]

    def _new_keys(self, like: Tensor) -> Tensor:
        if not self._place.is_transposed:
            return _zeros(self._place, like)
        place = self._place
        shape = (place.row_capacity, like.shape[1], like.shape[3], place.column_capacity)
        return like.new_zeros(shape).transpose(2, 3)


class SlotCache(Cache):
    """A cache of transformers for rows that join and leave one by one.

    Args:
        are_keys_transposed: a column of the buffer is a position, as an attention that multiplies
            matrices likes it.
    """

    def __init__(self, *, are_keys_transposed: bool = False) -> None:
        self._slot_layers: list[_SlotLayer] = []
        super().__init__(layers=self._slot_layers)  # type: ignore[arg-type]  # one list, two names
        self._place = _SharedState(is_transposed=are_keys_transposed)

    @property
    def first(self) -> int:
        return self._place.first

    @property
    def column(self) -> int:
        return self._place.column

    @property
    def column_capacity(self) -> int:
        return self._place.column_capacity

    def reserve(self, *, rows: int, width: int, steps: int) -> None:
        """Make room for ``rows`` rows in all, prompts of ``width`` columns, and the next step.

        Args:
            rows: of the batch, those that join included.
            width: columns that must lie before the one written next.
            steps: how many more columns there can be.
        """
        place = self._place
        is_roomy = place.row_capacity >= rows and place.column < place.column_capacity
        if is_roomy and place.column >= width:
            return
        seen = slice(place.first, place.column)
        span = seen.stop - seen.start
        column = max(span, width)
        if rows > place.row_capacity:
            place.row_capacity = rows if not place.rows else max(rows, place.row_capacity * 3 // 2)
        place.column_capacity = column + max(1, min(steps, max(_LEAST_ROOM, column // 2)))
        for layer in self._slot_layers:
            layer.rebuild(seen, column)
        place.first, place.column = column - span, column

    def append(self, prefilled: DynamicCache, sources: Tensor | slice) -> None:
        """Add a row for each prompt ``sources[i]`` of a prefilled cache."""
        place = self._place
        for index, layer in enumerate(prefilled.layers):
            if not isinstance(layer, DynamicLayer) or layer.keys is None or layer.values is None:
                raise TypeError(f"layer {index} keeps no keys and values: {type(layer).__name__}")
            if index == len(self._slot_layers):
                self._slot_layers.append(_SlotLayer(place, layer.keys, layer.values))
            keys = layer.keys[sources]
            rows = slice(place.rows, place.rows + len(keys))
            self._slot_layers[index].put(rows, keys, layer.values[sources])
        place.rows = rows.stop

    def advance(self) -> None:
        self._place.column += 1

    def keep(self, order: Sequence[int]) -> None:
        """Go on with the slots of ``order``; most of them should stand where they stood."""
        moves = [(to, source) for to, source in enumerate(order) if to != source]
        if moves:
            device = self._slot_layers[0].keys.device
            targets, sources = torch.tensor(moves, device=device).unbind(1)
            for layer in self._slot_layers:
                layer.copy_rows(targets, sources)
        self._place.rows = len(order)

    def wipe(self, row: int) -> None:
        """Forget what a row holds: hidden is not enough, for 0 * NaN is NaN."""
        for layer in self._slot_layers:
            layer.wipe(row)

    def skip_to(self, first: int) -> None:
        """Show the model nothing left of column ``first``."""
        self._place.first = first


def _zeros(place: _SharedState, like: Tensor) -> Tensor:
    # zeros: what lies before a prompt is hidden by a mask, but 0 * NaN is NaN
    return like.new_zeros(place.row_capacity, like.shape[1], place.column_capacity, like.shape[3])
