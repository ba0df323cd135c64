"""Continue rows that join and leave at the boundaries of steps.

    join() --prefill once each prompt--> slots of the cache --+
                                                              v
    sample() <---- logits <-------------- follow(): one column of all rows
       |
       +--> a row that ended (endings.py) leaves; the last one takes its slot

B slots in use   V vocabulary
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from trinity.engines.forward import prefill_groups
from trinity.engines.rows import is_penalised
from trinity.engines.sampling import Sampler, on_device, uniforms_of
from trinity.engines.slot_cache import SlotCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from transformers import DynamicCache

    from trinity.common.ports import WeightVersion
    from trinity.engines.forward import Forwards
    from trinity.engines.rows import Row, Settings, StopConditions


class Batch:
    """The rows that are being continued: slot i of cache, logits and tensors is ``rows[i]``.

    Args:
        forwards: of the model, whose weights stay while there is a batch.
        eos_V: which tokens end a reply.
        endings: where else one ends.
        seed: of all samples.
        version: of the weights.
    """

    def __init__(
        self,
        forwards: Forwards,
        *,
        eos_V: Tensor,
        endings: StopConditions,
        seed: int,
        version: WeightVersion,
    ) -> None:
        self.rows: list[Row] = []
        self._forwards = forwards
        self._eos_V = eos_V
        self._endings = endings
        self._seed = seed
        self._version = version
        self._cache = SlotCache(are_keys_transposed=forwards.likes_transposed_keys)
        self._logits_BV = eos_V.new_empty(0, len(eos_V), dtype=torch.float32)
        self._tokens_B = eos_V.new_empty(0, dtype=torch.int64)  # the last of each row
        self._starts: list[int] = []  # the column of the cache that each row begins at
        self._starts_B = eos_V.new_empty(0, dtype=torch.int64)
        self._adapters: list[str] = []  # of each row
        self._hidden_BC: Tensor | None = None
        self._sampler: Sampler | None = None
        self._settings: set[Settings] = set()
        self._is_penalised = False  # the sampler knows each row's tokens
        self._has_structure = False  # one row at least may not say anything it likes
        self._joining: Sequence[Row] = ()  # those that are being prefilled
        self._is_choosing = False  # some rows have their next token

    def join(self, rows: Sequence[Row]) -> list[tuple[Row, Exception]]:
        """Prefill the rows, each different text once; return those whose prefill fails.

        Raises:
            OutOfMemoryError: with fewer rows there might be enough: see :meth:`interrupted`.
        """
        self._joining = rows
        rows_of: dict[str, dict[tuple[int, ...], list[Row]]] = {}  # by adapter, then by text
        fresh = [row for row in rows if not row.tokens]
        for row, uniforms in zip(fresh, self._uniforms(fresh), strict=True):
            row.uniforms = uniforms
            self._endings.begin(row)
        for row in rows:
            row.note_version(self._version)
            rows_of.setdefault(row.request.adapter, {}).setdefault(row.text, []).append(row)
        waiting = [(of, group) for of, texts in rows_of.items() for group in prefill_groups(texts)]
        failed: list[tuple[Row, Exception]] = []
        while waiting:
            of, group = waiting.pop(0)
            joining = [(i, row) for i, prompt in enumerate(group) for row in rows_of[of][prompt]]
            try:
                with self._forwards.adapters.of_rows([of] * len(group)):
                    prefilled = self._forwards.prefill(group)
            except Exception as error:  # of these rows' rollouts, not the others'
                if len(group) == 1 and isinstance(error, torch.OutOfMemoryError):
                    raise
                if len(group) == 1:
                    failed += [(row, error) for _, row in joining]
                else:
                    waiting += [(of, [prompt]) for prompt in group]
            else:
                self._append(*prefilled, joining)
        self._joining = ()
        return failed

    def sample(self) -> list[tuple[Row, str]]:
        """Choose the next token of each row; the rows that ended leave, and are returned."""
        rows = self.rows
        uniforms = [row.uniforms[len(row.tokens)] for row in rows]
        tokens_B, logprobs_B = self._sampler_of_rows().choose(
            self._logits_BV,
            uniforms_B=on_device(uniforms, self._logits_BV.device),
            lengths=[len(row.tokens) for row in rows],
            allowed_BV=self._endings.allowed(rows) if self._has_structure else None,
        )
        self._tokens_B = tokens_B
        # one fetch for both; float64 holds either exactly
        chosen = torch.stack((tokens_B.double(), logprobs_B.double())).tolist()
        self._is_choosing = True
        done, ended = [], []
        for row, token, logprob in zip(rows, *chosen, strict=True):
            row.tokens.append(int(token))
            row.logprobs.append(logprob)
            reason = self._endings.reason(row)
            done.append(reason is not None)
            if reason is not None:
                ended.append((row, reason))
        if ended:
            self._remove(done)
            if order := slots_after(done):
                self._tokens_B = tokens_B[on_device(order, tokens_B.device)]
        self._is_choosing = False
        return ended

    def follow(self) -> None:
        """Go on by the tokens chosen last."""
        cache = self._cache
        if cache.column == cache.column_capacity:
            self._reserve(rows=len(self.rows), width=0)
            self._note_places()
        with self._forwards.adapters.of_rows(self._adapters):
            self._logits_BV = self._forwards.following(
                self._tokens_B, starts_B=self._starts_B, hidden_BC=self._hidden_BC, cache=cache
            )

    def leave(self, version: WeightVersion) -> list[Row]:
        """Let all rows go, and be ready for others with weights of another version."""
        rows, self.rows = self.rows, []
        self._version = version
        self._cache = SlotCache(are_keys_transposed=self._forwards.likes_transposed_keys)
        self._logits_BV = self._logits_BV[:0]
        self._starts, self._starts_B = [], self._starts_B[:0]
        self._hidden_BC, self._sampler, self._settings = None, None, set()
        self._is_penalised = self._has_structure = False
        return rows

    def interrupted(self) -> list[Row]:
        """Let all rows go after an error; return those that can be continued in another batch."""
        known = set(self.rows)
        rows = [*self.rows, *(row for row in self._joining if row not in known)]
        self.leave(self._version)
        return [] if self._is_choosing else rows

    def drop(self, is_gone: Callable[[Row], bool]) -> None:
        """Let rows leave that nobody wants any more."""
        done = [is_gone(row) for row in self.rows]
        if any(done):
            self._logits_BV = self._logits_BV[slots_after(done)]
            self._remove(done)

    def _append(
        self, logits_PV: Tensor, prefilled: DynamicCache, joining: list[tuple[int, Row]]
    ) -> None:
        rows, picked = [row for _, row in joining], [prompt for prompt, _ in joining]
        is_all = picked == list(range(len(logits_PV)))
        sources = slice(None) if is_all else on_device(picked, logits_PV.device)
        self._reserve(
            rows=len(self.rows) + len(rows),
            width=max(len(row.text) for row in rows),
            steps=max(row.num_left for row in rows),
        )
        self._cache.append(prefilled, sources)
        logits_BV = logits_PV[sources]
        self._logits_BV = torch.cat((self._logits_BV, logits_BV)) if self.rows else logits_BV
        self.rows = [*self.rows, *rows]
        self._starts += [self._cache.column - len(row.text) for row in rows]
        self._note_places()

    def _reserve(self, *, rows: int, width: int, steps: int = 0) -> None:
        left = max((row.num_left for row in self.rows), default=0)
        column = self._cache.column
        self._cache.reserve(rows=rows, width=width, steps=max(steps, left + 1))
        shift = self._cache.column - column
        self._starts = [start + shift for start in self._starts]

    def _remove(self, done: Sequence[bool]) -> None:
        for slot, row in enumerate(self.rows):
            if done[slot] and row.logprobs and math.isnan(row.logprobs[-1]):
                self._cache.wipe(slot)
        order = slots_after(done)
        self._cache.keep(order)
        self.rows = [self.rows[slot] for slot in order]
        self._starts = [self._starts[slot] for slot in order]
        if order:
            self._note_places()

    def _note_places(self) -> None:
        """Tell tensors and cache which rows there are and where they begin."""
        self._starts_B = on_device(self._starts, self._starts_B.device)
        self._adapters = [row.request.adapter for row in self.rows]
        first = min(self._starts)
        self._cache.skip_to(first)
        is_padded = max(self._starts) > first
        self._hidden_BC = None
        if is_padded or self._forwards.makes_masks:
            self._hidden_BC = self._forwards.mask(self._starts_B, self._cache.column_capacity)
        self._has_structure = any(row.matcher is not None for row in self.rows)
        settings = {row.ask.settings for row in self.rows}
        if len(settings) > 1 or settings != self._settings or self._is_penalised:
            self._sampler, self._settings = None, settings

    def _sampler_of_rows(self) -> Sampler:
        if self._sampler is None:
            rows = [(row.request, row.tokens) for row in self.rows]
            self._is_penalised = any(is_penalised(request) for request, _ in rows)
            is_common = len(self._settings) == 1 and not self._is_penalised
            self._sampler = Sampler(rows[:1] if is_common else rows, eos_V=self._eos_V)
        return self._sampler

    def _uniforms(self, rows: Sequence[Row]) -> list[list[float]]:
        asked = [(row, row.request) for row in rows]
        return uniforms_of(
            [(one.drawn_by if one.seed else one.key, row.sample) for row, one in asked],
            seed=self._seed,
            version=self._version,
            counts=[row.limit for row in rows],
        )


def slots_after(done: Sequence[bool]) -> list[int]:
    """Return the slots that go on; those behind the new end move into the places left.

    >>> slots_after([False, True, False, True, False])
    [0, 4, 2]
    """
    kept = done.count(False)
    movers = (slot for slot in range(kept, len(done)) if not done[slot])
    return [next(movers) if done[slot] else slot for slot in range(kept)]
