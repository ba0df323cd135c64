"""Log-probabilities of the tokens of a text under the full softmax, the likeliest among them.

L tokens of a text   N tokens that are scored, its last ones   P of them at once   K at a place
V vocabulary   C cells of a tensor of given tokens
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trinity_tinker.gradients import policy_of
from trinity_tinker.tensors import Cells, bytes_of
from trinity_tinker.wire import message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor
    from transformers import PreTrainedModel

__all__ = ["EMPTY", "Scores", "scores_of", "target_logprobs", "token_logprobs", "top_logprobs"]

EMPTY = -99999.0  # in the table of likeliest tokens, where nothing was asked for
_PIECE = 512  # tokens whose logits exist at once: of a whole text they can fill the memory


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """Log-probabilities of the last tokens of a text, and of others in their places."""

    own_N: NDArray[np.float32]
    top_ids_NK: NDArray[np.int32]
    top_NK: NDArray[np.float32]  # of the likeliest
    target_C: NDArray[np.float32]  # of the given tokens, 0 for -1

    def last(self, count: int) -> Scores:
        """Return those of so many of the last tokens; the given tokens' stay."""
        first = len(self.own_N) - count
        return Scores(
            own_N=self.own_N[first:],
            top_ids_NK=self.top_ids_NK[first:],
            top_NK=self.top_NK[first:],
            target_C=self.target_C,
        )


@torch.no_grad()
def scores_of(
    module: PreTrainedModel,
    tokens: Sequence[int],
    *,
    last: int,
    temperature: float = 1.0,
    num_top: int = 0,
    targets: Cells | None = None,
) -> Scores:
    """Return what a model says about the last tokens of a text.

    Args:
        module: the model.
        tokens: the text.
        last: tokens that are scored.
        temperature: of the softmax.
        num_top: likeliest tokens of each place.
        targets: token ids ``[L - 1, K]`` to be scored as well; ``last`` is L - 1.
    """
    num_targets = 0 if targets is None else len(targets.values_C)
    made = _nothing(last, num_top=num_top, num_targets=num_targets)
    policy = policy_of(module)
    ids_L = torch.tensor(tokens, device=module.device)
    states_LD = policy.body(input_ids=ids_L[None], use_cache=False).last_hidden_state[0]
    before = len(tokens) - 1 - last  # places whose next token is not scored
    for start in range(0, last, _PIECE):
        end = min(start + _PIECE, last)
        logits_PV = policy.logits(states_LD[before + start : before + end]).float()
        if temperature != 1.0:
            logits_PV /= temperature
        logprobs_PV = logits_PV.log_softmax(-1)
        del logits_PV
        own_P = ids_L[before + 1 + start : before + 1 + end]
        made.own_N[start:end] = _numbers(logprobs_PV.gather(1, own_P[:, None])[:, 0])
        if num_top:
            top = logprobs_PV.topk(min(num_top, logprobs_PV.shape[1]), dim=1)
            found = top.indices.shape[1]
            made.top_ids_NK[start:end, :found] = _numbers(top.indices)
            made.top_NK[start:end, :found] = _numbers(top.values)
        if targets is not None:
            _score_targets(made.target_C, logprobs_PV, targets, start=start)
    return made


def token_logprobs(scores: Scores, *, length: int) -> NDArray[np.float32]:
    """Return ``[L]`` with each token's log-probability, NaN where it was not scored."""
    values = np.full(length, np.nan, dtype="<f4")
    values[length - len(scores.own_N) :] = scores.own_N
    return values


def top_logprobs(scores: Scores, *, length: int) -> Any:
    """Return a ``TopkLogprobs`` message of ``length`` rows, the last of which were scored."""
    last, k = scores.top_NK.shape
    ids, values = np.zeros((length, k), dtype="<i4"), np.full((length, k), EMPTY, dtype="<f4")
    ids[length - last :], values[length - last :] = scores.top_ids_NK, scores.top_NK
    made = message("TopkLogprobs")
    made.token_ids, made.logprobs = ids.tobytes(), values.tobytes()
    made.k, made.length = k, length
    return made


def target_logprobs(scores: Scores, targets: Cells) -> Any:
    """Return a ``Tensor`` message of the targets' layout: their log-probabilities, 0 for -1."""
    values = scores.target_C.astype("<f4")
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


def _nothing(last: int, *, num_top: int, num_targets: int) -> Scores:
    return Scores(
        own_N=np.zeros(last, dtype=np.float32),
        top_ids_NK=np.zeros((last, num_top), dtype=np.int32),
        top_NK=np.full((last, num_top), EMPTY, dtype=np.float32),
        target_C=np.zeros(num_targets, dtype=np.float32),
    )


def _score_targets(
    into_C: NDArray[np.float32], logprobs_PV: Tensor, targets: Cells, *, start: int
) -> None:
    """Fill in the cells whose rows are those of a piece."""
    ends = np.searchsorted(targets.rows_C, [start, start + len(logprobs_PV)])
    rows_C, ids_C = (part[slice(*ends)] for part in (targets.rows_C, targets.values_C))
    is_asked = ids_C >= 0
    places = (torch.from_numpy(part[is_asked]) for part in (rows_C - start, ids_C))
    into_C[slice(*ends)][is_asked] = _numbers(logprobs_PV[tuple(places)])


def _numbers(values: Tensor) -> NDArray[Any]:
    return values.cpu().numpy()
