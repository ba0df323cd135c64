"""The forwards of a model: prompts at once, or one token of every row.

B slots in use   W columns of the prompts   V vocabulary
"""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from transformers import DynamicCache

from trinity.engines.sampling import on_device
from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor
    from transformers import PreTrainedModel

    from trinity.engines.cpu_kernels import CpuKernels
    from trinity.engines.slot_cache import SlotCache

_PREFILL_TOKENS = 16_384  # of one forward, padding included


class RowAdapters:
    """Adapters (LoRA) by name, in a model whose rows compute with one of them each; here: none."""

    def __contains__(self, name: object) -> bool:
        return False

    def of_rows(self, names: Sequence[str]) -> AbstractContextManager[None]:
        """Return the block in which row i of this thread's forwards computes with ``names[i]``."""
        del names
        return nullcontext()


class Forwards:
    """Runs one model; owned by one thread.

    Args:
        module: any decoder of transformers that keeps keys and values.
        max_model_len: the longest context there will be.
        kernels: what computes faster than transformers; None: transformers as it is.
        adapters: that are in the model; None: none are.

    Raises:
        ModelError: the model keeps something else.
    """

    def __init__(
        self,
        module: PreTrainedModel,
        *,
        max_model_len: int,
        kernels: CpuKernels | None = None,
        adapters: RowAdapters | None = None,
    ) -> None:
        _check_kind(module)
        self._module = module
        self._kernels = kernels
        self.adapters = adapters or RowAdapters()
        self._keeps_logits = "logits_to_keep" in inspect.signature(module.forward).parameters
        self.makes_masks = _makes_masks(module, max_model_len)
        self.vocab = module.get_output_embeddings().weight.shape[0]
        self.device = module.device

    @property
    def likes_transposed_keys(self) -> bool:
        """Return whether the attention in use multiplies by keys as they lie transposed."""
        return self._kernels is not None and self._kernels.has_attention

    def in_use(self) -> AbstractContextManager[None]:
        return nullcontext() if self._kernels is None else self._kernels.in_use()

    def prefill(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Tensor, DynamicCache]:
        """Return the logits after each prompt, ``[B, V]``, and their keys and values."""
        width = max(len(prompt) for prompt in prompts)
        ids, starts = (on_device(one, self.device) for one in _left_padded(prompts, width))
        cache = DynamicCache()
        logits_BV = self._forward(
            ids,
            positions=(torch.arange(width, device=ids.device) - starts[:, None]).clamp_(min=0),
            mask=self._prefill_mask(starts, width) if len(prompts[-1]) < width else None,
            cache=cache,
        )
        return logits_BV, cache

    def following(
        self, tokens_B: Tensor, *, starts_B: Tensor, hidden_BC: Tensor | None, cache: SlotCache
    ) -> Tensor:
        """Return the logits after one more token of each row, ``[B, V]``.

        Args:
            tokens_B: the tokens.
            starts_B: the column of the cache that each row begins at.
            hidden_BC: as :meth:`mask` makes it, for the columns of the cache; None: all is seen.
            cache: of the rows; it goes on by a column.
        """
        mask = None
        if hidden_BC is not None:
            mask = _columns(hidden_BC, cache.first, cache.column + 1)
            mask = mask if self.makes_masks else mask[:, None, None, :]
        logits_BV = self._forward(
            tokens_B[:, None],
            positions=(cache.column - starts_B)[:, None],
            mask=mask,
            cache=cache,
        )
        cache.advance()
        return logits_BV

    def mask(self, starts_B: Tensor, columns: int) -> Tensor:
        """Return which columns each row sees, ``[B, columns]``.

        A model that makes its own masks is told which columns hold tokens; any other one gets the
        finished mask, made once for all its layers and for the steps to come.
        """
        is_hidden = torch.arange(columns, device=starts_B.device) < starts_B[:, None]
        return (~is_hidden).long() if self.makes_masks else self._additive(is_hidden)

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

    def _prefill_mask(self, starts: Tensor, width: int) -> Tensor:
        columns = torch.arange(width, device=starts.device)
        is_token = columns >= starts[:, None]
        if self.makes_masks:
            return is_token.long()
        sees = (columns[:, None] >= columns) & is_token[:, None, None, :]
        return self._additive(~sees)

    def _additive(self, is_hidden: Tensor) -> Tensor:
        """Return 0 where a column is seen and the least number where it is hidden."""
        zeros = torch.zeros(is_hidden.shape, dtype=self._module.dtype, device=is_hidden.device)
        return zeros.masked_fill_(is_hidden, torch.finfo(zeros.dtype).min)


def _columns(hidden_BC: Tensor, first: int, end: int) -> Tensor:
    """Return columns of a mask; on a GPU as memory of their own.

    Attention there reads many numbers at once. Torch looks at how rows follow each other, not at
    where the first one begins: within another row that is an address that cannot be read so.
    """
    columns = hidden_BC[:, first:end]
    if columns.device.type == "cpu":
        return columns
    return columns.clone(memory_format=torch.contiguous_format)


def prefill_groups(prompts: Iterable[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Return the prompts in groups of similar length, each within the tokens of one forward."""
    groups: list[list[tuple[int, ...]]] = []
    for prompt in sorted(prompts, key=lambda prompt: -len(prompt)):
        width = len(groups[-1][0]) if groups else 0
        if not groups or width * (len(groups[-1]) + 1) > _PREFILL_TOKENS:
            groups.append([])
        groups[-1].append(prompt)
    return groups


def _left_padded(prompts: Sequence[tuple[int, ...]], width: int) -> tuple[list[Any], list[int]]:
    starts = [width - len(prompt) for prompt in prompts]
    padded = [[0] * start + list(prompt) for start, prompt in zip(starts, prompts, strict=True)]
    return padded, starts


def _check_kind(module: PreTrainedModel) -> None:
    if getattr(module, "_is_stateful", False):
        raise ModelError(
            f"{type(module).__name__} has a recurrent state, but this engine caches only keys and "
            f"values. Use a model with attention layers only, or another "
            f"explorer.rollout_model.engine_type."
        )


def _makes_masks(module: PreTrainedModel, max_model_len: int) -> bool:
    """Return whether the model has to: a layer sees less than its context, or counts its tokens."""
    if hasattr(sys.modules.get(type(module).__module__), "build_alibi_tensor"):
        return True
    config = module.config.get_text_config(decoder=True)
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if not kinds <= {"full_attention", "sliding_attention"}:
        return True
    window = getattr(config, "sliding_window", None)
    return window is not None and window < max_model_len
