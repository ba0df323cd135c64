"""Continue a batch of prompts until each row has ended.

    unique prompts --prefill once each--> cache of all rows --+
                                                              v
    tokens <-- Sampler <-- logits <------------- model: one column a step
       |                                                      ^
       +--> a row that ended leaves: its slot is refilled ----+

B slots in use   R rows of the batch   T steps   W columns of the prompts   V vocabulary
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import torch
from transformers import DynamicCache

from trinity.engines.rows import Batch, Row, additive_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from transformers import PreTrainedModel

    from trinity.common.ports import Completion, WeightVersion
    from trinity.engines.slot_cache import SlotCache

__all__ = ["Decoder"]

_PREFILL_TOKENS = 16_384  # of one forward, padding included


class Decoder:
    """Runs one model; owned by one thread.

    Args:
        module: any decoder of transformers that keeps keys and values.
        eos_token_ids: tokens that end a reply.
        seed: of all samples.
        max_model_len: the longest context there will be.
        checkpoint: called before each step; raises to give the batch up.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        *,
        eos_token_ids: Sequence[int],
        seed: int,
        max_model_len: int,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> None:
        self._module = module
        self._seed = seed
        self._checkpoint = checkpoint
        self._keeps_logits = "logits_to_keep" in inspect.signature(module.forward).parameters
        self._has_windows = _has_windows(module, max_model_len)
        vocab = module.get_output_embeddings().weight.shape[0]
        self._eos_V = torch.zeros(vocab, dtype=torch.bool, device=module.device)
        self._eos_V[[token for token in eos_token_ids if token < vocab]] = True

    @property
    def vocab(self) -> int:
        """Return how many tokens the model knows."""
        return len(self._eos_V)

    def complete(self, rows: Sequence[Row], *, version: WeightVersion) -> list[Completion]:
        """Return the completion of each row."""
        batch = Batch(
            rows,
            seed=self._seed,
            version=version,
            eos_V=self._eos_V,
            has_windows=self._has_windows,
        )
        logits_BV = self._prefill(batch)
        for step in range(batch.steps):
            self._checkpoint()
            tokens_B, logprobs_B = batch.sampler.choose(logits_BV, step=step)
            tokens_B = batch.record(tokens_B, logprobs_B, step=step)
            if len(tokens_B) == 0:
                break
            logits_BV = self._next_logits(batch, tokens_B)
        return batch.completions()

    def _prefill(self, batch: Batch) -> Tensor:
        """Fill the cache, each different prompt once; return the rows' first logits."""
        logits_BV = self._eos_V.new_empty(len(batch.rows), self.vocab, dtype=torch.float32)
        for prompts in _prefill_groups(batch.prompts):
            width = max(len(batch.prompts[index]) for index in prompts)
            ids, starts = _left_padded([batch.prompts[i] for i in prompts], width)
            ids, starts = ids.to(self._eos_V.device), starts.to(self._eos_V.device)
            cache = DynamicCache()
            first_logits = self._forward(
                ids,
                positions=(torch.arange(width, device=ids.device) - starts[:, None]).clamp_(min=0),
                mask=self._prefill_mask(starts, width),
                cache=cache,
            )
            slots, sources = batch.slots_of(prompts)
            batch.cache.fill(slots, sources, cache)
            logits_BV[slots] = first_logits[sources]
        return logits_BV

    def _next_logits(self, batch: Batch, tokens_B: Tensor) -> Tensor:
        logits_BV = self._forward(
            tokens_B[:, None],
            positions=batch.positions_B[:, None],
            mask=batch.mask(self._module.dtype),
            cache=batch.cache,
        )
        batch.advance()
        return logits_BV

    def _forward(
        self,
        ids: Tensor,
        *,
        positions: Tensor,
        mask: Tensor | None,
        cache: DynamicCache | SlotCache,
    ) -> Tensor:
        options = {"logits_to_keep": 1} if self._keeps_logits else {}
        output = self._module(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
            **options,
        )
        return output.logits[:, -1].float()

    def _prefill_mask(self, starts: Tensor, width: int) -> Tensor | None:
        if not bool(starts.any()):
            return None  # the model's own causal mask
        columns = torch.arange(width, device=starts.device)
        is_token = columns >= starts[:, None]
        if self._has_windows:
            return is_token.long()
        sees = (columns[:, None] >= columns) & is_token[:, None, None, :]
        return additive_mask(~sees, self._module.dtype)


def _prefill_groups(prompts: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Return the prompts in groups of similar length, each within the tokens of one forward."""
    groups: list[list[int]] = []
    for index in sorted(range(len(prompts)), key=lambda i: -len(prompts[i])):
        width = len(prompts[groups[-1][0]]) if groups else 0
        if not groups or width * (len(groups[-1]) + 1) > _PREFILL_TOKENS:
            groups.append([])
        groups[-1].append(index)
    return groups


def _left_padded(prompts: Sequence[tuple[int, ...]], width: int) -> tuple[Tensor, Tensor]:
    ids = torch.zeros(len(prompts), width, dtype=torch.int64)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
    return ids, torch.tensor([width - len(prompt) for prompt in prompts])


def _has_windows(module: PreTrainedModel, max_model_len: int) -> bool:
    """Return whether a layer can see less than its context: the model then makes its own masks."""
    config = module.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if not kinds <= {"full_attention", "sliding_attention"}:
        return True
    window = getattr(config, "sliding_window", None)
    return window is not None and window < max_model_len
