"""Cut packs between the ranks that share each sequence.

    pack    p p p a b c d .     padded to a multiple of the ranks
    rank 0  p p p a             with its positions in the pack, and its scored tokens
    rank 1          b c d .     attention sees all of them, see ``ulysses.py``

A stem and the branches after it are each cut so; whatever is padded is hidden by a mask.

P packs   L tokens of a pack   G branches   K tokens of a branch   S ranks   D width
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from trinity.trainer.forward import has_window, masks_of, tree_mask

if TYPE_CHECKING:
    from torch import nn

    from trinity.trainer.microbatch import ModelInputs


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Which part of each sequence is a rank's own.

    >>> Part(place=1, size=2).of(torch.tensor([[1, 2, 3]])).tolist()
    [[3, 0]]
    """

    place: int
    size: int

    def of(self, values_PL: Tensor) -> Tensor:
        """Return this rank's columns of what is padded with 0 to a multiple."""
        return self._padded(values_PL).chunk(self.size, dim=1)[self.place]

    def scored(self, inputs: ModelInputs) -> ModelInputs:
        """Return the inputs with those scored tokens alone that this rank has the states of.

        ``slots_N`` then counts through what :meth:`states` returns here.
        """
        stem = inputs.tokens_PL
        in_rows = inputs.slots_N < stem.numel()
        is_own_N, slots_N = self._own_slots(inputs.slots_N, length=stem.shape[1])
        if inputs.branches_GK is not None:
            offset = self._length(stem.shape[1])
            after_N = inputs.slots_N - stem.numel()
            is_after_N, places_N = self._own_slots(after_N, length=inputs.branches_GK.shape[1])
            is_own_N = torch.where(in_rows, is_own_N, is_after_N)
            slots_N = torch.where(in_rows, slots_N, offset + places_N)
        temperature_N = inputs.temperature_N
        return replace(
            inputs,
            rows_N=inputs.rows_N[is_own_N],
            columns_N=inputs.columns_N[is_own_N],
            slots_N=slots_N[is_own_N],
            targets_N=inputs.targets_N[is_own_N],
            temperature_N=None if temperature_N is None else temperature_N[is_own_N],
        )

    def states(self, body: nn.Module, inputs: ModelInputs) -> Tensor:
        """Return ``[slots, D]``, the last states of this rank's slots, padding among them.

        Args:
            body: a decoder whose attention gathers sequences.
            inputs: whole packs, on the body's device.
        """
        if inputs.branches_GK is not None:
            return self._cached_states(body, inputs.tokens_PL, inputs.branches_GK)
        positions_PL = inputs.positions_PL
        if positions_PL is None:
            positions_PL = _counted(inputs.tokens_PL)
        mask: dict[str, Any] = {}  # Any: a tensor, or one for each kind of layer
        if inputs.ends_PL is not None or has_window(body):
            mask["attention_mask"] = self._mask(body, inputs.ends_PL, positions_PL)
        outputs = body(
            input_ids=self.of(inputs.tokens_PL),
            position_ids=self.of(positions_PL),
            use_cache=False,
            **mask,
        )
        states: Tensor = outputs.last_hidden_state.flatten(0, 1)
        return states

    def _mask(self, body: nn.Module, ends_PL: Tensor | None, positions_PL: Tensor) -> Any:
        """Return the mask of whole sequences, padding among them (Any: as the model takes it)."""
        num_packs, length = positions_PL.shape
        whole = self._length(length) * self.size
        slots_L = torch.arange(1, whole + 1, device=positions_PL.device)
        all_PL = slots_L.repeat(num_packs, 1)  # who is padding is seen by itself
        if ends_PL is None:
            all_PL[:, :length] = length
        else:
            all_PL[:, :length] = ends_PL
        return masks_of(body, tree_mask(all_PL), self._padded(positions_PL))

    def _cached_states(self, body: nn.Module, stem: Tensor, branches_GK: Tensor) -> Tensor:
        outputs = body(
            input_ids=self.of(stem), position_ids=self.of(_counted(stem)), use_cache=True
        )
        cache = outputs.past_key_values
        for layer in cache.layers:
            layer.keys = layer.keys.expand(len(branches_GK), -1, -1, -1)
            layer.values = layer.values.expand(len(branches_GK), -1, -1, -1)
        of_branches = body(
            input_ids=self.of(branches_GK),
            position_ids=self.of(_counted(branches_GK) + stem.shape[1]),
            attention_mask=self._mask_after(stem.shape[1], branches_GK),
            past_key_values=cache,
            use_cache=True,
        )
        parts = outputs.last_hidden_state, of_branches.last_hidden_state
        return torch.cat([states.flatten(0, 1) for states in parts])

    def _mask_after(self, stem: int, branches_GK: Tensor) -> Tensor:
        """Return ``[1, 1, K, stem + K]``: branches see the stem without its padding."""
        width, past = (self._length(length) * self.size for length in (branches_GK.shape[1], stem))
        sees_stem = torch.arange(past, device=branches_GK.device) < stem
        sees_KK = torch.ones((width, width), dtype=torch.bool, device=branches_GK.device).tril()
        return torch.cat((sees_stem.expand(width, past), sees_KK), dim=1)[None, None]

    def _own_slots(self, slots_N: Tensor, *, length: int) -> tuple[Tensor, Tensor]:
        """Return which slots of rows of this length are this rank's, and where they stand here."""
        own = self._length(length)
        rows_N, columns_N = slots_N // length, slots_N % length
        is_own_N = columns_N // own == self.place
        return is_own_N, rows_N * own + columns_N % own

    def _length(self, length: int) -> int:
        """Return how many columns a rank has of so many."""
        return -(-length // self.size)

    def _padded(self, values_PL: Tensor) -> Tensor:
        length = values_PL.shape[1]
        return pad(values_PL, (0, self._length(length) * self.size - length))


def _counted(tokens_PL: Tensor) -> Tensor:
    return torch.arange(tokens_PL.shape[1], device=tokens_PL.device).repeat(len(tokens_PL), 1)
