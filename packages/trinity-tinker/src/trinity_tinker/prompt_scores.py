"""Log-probabilities of the tokens of a text under the full softmax, the likeliest among them.

L tokens of a text   N tokens that are scored, its last ones   K of them at a place   V vocabulary
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trinity_tinker.tensors import Cells, bytes_of
from trinity_tinker.wire import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["EMPTY", "target_logprobs", "token_logprobs", "top_logprobs"]

EMPTY = -99999.0  # in the table of likeliest tokens, where nothing was asked for


@torch.no_grad()
def logprobs_of(
    module: PreTrainedModel, tokens: Sequence[int], *, last: int, temperature: float = 1.0
) -> Tensor:
    """Return ``[last, V]``: what the model says about each of the last tokens, float32."""
    ids = torch.tensor([tokens], device=module.device)
    logits_BNV = module(input_ids=ids, use_cache=False, logits_to_keep=last + 1).logits
    return (logits_BNV[0, :-1].float() / temperature).log_softmax(-1)


def token_logprobs(logprobs_NV: Tensor, tokens: Sequence[int]) -> NDArray[np.float32]:
    """Return ``[L]`` with each token's log-probability, NaN where it was not scored."""
    values = np.full(len(tokens), np.nan, dtype="<f4")
    last = len(logprobs_NV)
    if last:
        targets_N = torch.tensor(tokens[-last:], device=logprobs_NV.device)
        values[-last:] = logprobs_NV.gather(1, targets_N[:, None])[:, 0].cpu().numpy()
    return values


def top_logprobs(logprobs_NV: Tensor, *, k: int, length: int) -> Any:
    """Return a ``TopkLogprobs`` message of ``length`` rows, the last of which were scored."""
    top = logprobs_NV.topk(min(k, logprobs_NV.shape[1]), dim=1)
    ids, values = np.zeros((length, k), dtype="<i4"), np.full((length, k), EMPTY, dtype="<f4")
    last, found = top.indices.shape
    if last:
        ids[-last:, :found] = top.indices.cpu().numpy()
        values[-last:, :found] = top.values.cpu().numpy()
    made = message("TopkLogprobs")
    made.token_ids, made.logprobs = ids.tobytes(), values.tobytes()
    made.k, made.length = k, length
    return made


def target_logprobs(logprobs_NV: Tensor, targets: Cells) -> Any:
    """Return a ``Tensor`` message of the targets' layout: their log-probabilities, 0 for -1.

    Args:
        logprobs_NV: of all tokens but the first.
        targets: token ids, ``[L - 1, K]``.
    """
    is_asked = targets.values_C >= 0
    rows, ids = targets.rows_C[is_asked], targets.values_C[is_asked]
    values = np.zeros(len(targets.values_C), dtype="<f4")
    values[is_asked] = logprobs_NV[torch.from_numpy(rows), torch.from_numpy(ids)].cpu().numpy()
    made = message("Tensor")
    made.dtype = 1
    made.shape.extend(targets.shape)
    if targets.is_sparse:
        crow = np.searchsorted(targets.rows_C, np.arange(targets.shape[0] + 1))
        made.sparse_csr.values = values.tobytes()
        made.sparse_csr.crow_indices = bytes_of(crow, "<i8")
        made.sparse_csr.col_indices = bytes_of(targets.columns_C, "<i8")
    else:
        made.dense = values.tobytes()
    return made
