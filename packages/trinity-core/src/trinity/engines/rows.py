"""The rows of a batch that are being continued: what each has, where each stands, which ended.

B slots in use   R rows of the batch   T steps   W columns of the prompts   V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from trinity.common.ports import Completion, GenerationRequest, WeightVersion
from trinity.engines.randomness import sample_uniforms
from trinity.engines.sampling import Sampler
from trinity.engines.slot_cache import SlotCache
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["Batch", "Row", "additive_mask", "slots_after"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One sample to be drawn: the ``sample``-th of its request, at most ``limit`` tokens long."""

    source: int  # which of the taken requests
    request: GenerationRequest
    sample: int
    limit: int


class Batch:
    """The state of the rows: slot i of every tensor with a ``B`` belongs to one unfinished row."""

    def __init__(
        self,
        rows: Sequence[Row],
        *,
        seed: int,
        version: WeightVersion,
        eos_V: Tensor,
        has_windows: bool,
    ) -> None:
        device = eos_V.device
        requests = [row.request for row in rows]
        self.rows = rows
        self.steps = max(row.limit for row in rows)
        self._version = version
        self.prompts, self._prompt_of_row = _unique([r.prompt_token_ids for r in requests])
        self._width = max(len(prompt) for prompt in self.prompts)
        self.cache = SlotCache(rows=len(rows), width=self._width, columns=self._width + self.steps)
        self.sampler = Sampler(
            requests, uniforms_RT=_uniforms(rows, seed, version, self.steps).to(device), eos_V=eos_V
        )
        self._eos_V = eos_V
        self._has_windows = has_windows
        lengths = [len(r.prompt_token_ids) for r in requests]
        self.positions_B = torch.tensor(lengths, device=device)
        self._starts_B = self._width - self.positions_B
        self._column = self._width
        self._row_B = torch.arange(len(rows), device=device)
        self._limit_B = torch.tensor([row.limit for row in rows], device=device)
        self._may_stop_B = torch.tensor([not r.ignore_eos for r in requests], device=device)
        self._tokens_RT = self._row_B.new_zeros(len(rows), self.steps)
        self._logprobs_RT = torch.zeros(len(rows), self.steps, device=device)
        self._ends: dict[int, tuple[int, str]] = {}
        self._note_padding()

    def slots_of(self, prompts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the slots that begin with one of the prompts, and which of them each does."""
        place = {prompt: i for i, prompt in enumerate(prompts)}
        pairs = [(row, place[p]) for row, p in enumerate(self._prompt_of_row) if p in place]
        slots, sources = torch.tensor(pairs, device=self._row_B.device).unbind(1)
        return slots, sources

    def record(self, tokens_B: Tensor, logprobs_B: Tensor, *, step: int) -> Tensor:
        """Note the tokens; drop the rows that ended; return the tokens of the others."""
        self._tokens_RT[self._row_B, step] = tokens_B
        self._logprobs_RT[self._row_B, step] = logprobs_B
        is_eos_B = self._eos_V[tokens_B] & self._may_stop_B
        is_done_B = is_eos_B | (self._limit_B <= step + 1)
        if not bool(is_done_B.any()):
            return tokens_B
        done = is_done_B.tolist()
        for row, is_done, is_eos in zip(self._row_B.tolist(), done, is_eos_B.tolist(), strict=True):
            if is_done:
                self._ends[row] = (step + 1, "stop" if is_eos else "length")
        return tokens_B[self._keep(slots_after(done))]

    def mask(self, dtype: torch.dtype) -> Tensor | None:
        """Return what the next token sees; None: all of the columns that are shown.

        A model whose layers see windows is told which columns hold tokens, ``[B, columns]``; any
        other one gets the finished mask, ``[B, 1, 1, columns]``, made once for all its layers.
        """
        if not self._is_padded and not self._has_windows:
            return None
        columns = torch.arange(self._first, self._column + 1, device=self._starts_B.device)
        is_hidden = columns < self._starts_B[:, None]
        if self._has_windows:
            return (~is_hidden).long()
        return additive_mask(is_hidden[:, None, None, :], dtype)

    def advance(self) -> None:
        """Go on by one column."""
        self._column += 1
        self.positions_B += 1
        self.cache.advance()

    def completions(self) -> list[Completion]:
        """Return what was recorded.

        Raises:
            ModelError: the model computes NaN.
        """
        if bool(self._logprobs_RT.isnan().any()):
            raise ModelError(
                f"the model computes NaN with the weights of version {self._version}: training "
                f"diverged. Go back to an earlier checkpoint, and lower algorithm.optimizer.lr."
            )
        tokens, logprobs = self._tokens_RT.tolist(), self._logprobs_RT.tolist()
        return [
            Completion(
                token_ids=tuple(tokens[row][:length]),
                logprobs=tuple(logprobs[row][:length]),
                finish_reason=reason,
                weight_version=self._version,
            )
            for row, (length, reason) in sorted(self._ends.items())
        ]

    def _keep(self, order: list[int]) -> Tensor:
        order_B = torch.tensor(order, dtype=torch.int64, device=self._row_B.device)
        if order:
            self.cache.keep(order)
            self.sampler.keep(order_B)
        self.positions_B = self.positions_B[order_B]
        self._starts_B = self._starts_B[order_B]
        self._row_B = self._row_B[order_B]
        self._limit_B = self._limit_B[order_B]
        self._may_stop_B = self._may_stop_B[order_B]
        self._note_padding()
        return order_B

    def _note_padding(self) -> None:
        starts = self._starts_B.tolist() or [0]
        self._first = 0 if self._has_windows else min(starts)
        self._is_padded = max(starts) > self._first
        self.cache.skip_to(self._first)


def slots_after(done: Sequence[bool]) -> list[int]:
    """Return the slots that go on; those behind the new end move into the places left.

    >>> slots_after([False, True, False, True, False])
    [0, 4, 2]
    """
    kept = done.count(False)
    movers = (slot for slot in range(kept, len(done)) if not done[slot])
    return [next(movers) if done[slot] else slot for slot in range(kept)]


def _unique(prompts: Sequence[tuple[int, ...]]) -> tuple[list[tuple[int, ...]], list[int]]:
    index: dict[tuple[int, ...], int] = {}
    of_row = [index.setdefault(prompt, len(index)) for prompt in prompts]
    return list(index), of_row


def _uniforms(rows: Sequence[Row], seed: int, version: WeightVersion, steps: int) -> Tensor:
    uniforms_RT = np.zeros((len(rows), steps), dtype=np.float32)
    for index, row in enumerate(rows):
        uniforms_RT[index, : row.limit] = sample_uniforms(
            row.request.key, sample=row.sample, seed=seed, version=version, count=row.limit
        )
    return torch.from_numpy(uniforms_RT)


def additive_mask(is_hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where a column is seen and the least number of the dtype where it is hidden."""
    zeros = torch.zeros(is_hidden.shape, dtype=dtype, device=is_hidden.device)
    return zeros.masked_fill_(is_hidden, torch.finfo(dtype).min)
