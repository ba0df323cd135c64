"""Choose the next token of every row.

    B rows of a batch   V vocabulary   R all rows that the batch began with   T steps

What the settings of a request change (penalty, minimum length, top-k, top-p) changes what is
sampled, never the log-probability that is reported: that one is of the model's own distribution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trinity.common.ports import GenerationRequest

__all__ = ["Sampler", "search"]


class Sampler:
    """Holds the settings of the rows that are still being continued, one entry a slot.

    Args:
        requests: the request of each row.
        uniforms_RT: a number in [0, 1) for each row and step.
        eos_V: which tokens end a reply.
    """

    def __init__(
        self, requests: Sequence[GenerationRequest], *, uniforms_RT: Tensor, eos_V: Tensor
    ) -> None:
        device = eos_V.device
        self._uniforms_RT = uniforms_RT
        self._eos_V = eos_V
        self._row_B = torch.arange(len(requests), device=device)
        heat = [r.temperature or 1.0 for r in requests]
        self._heat_B = _column(heat, device) if set(heat) != {1.0} else None
        self._greedy_B = _column([r.temperature == 0 for r in requests], device)
        self._top_k_B = _column([r.top_k if r.top_k > 0 else len(eos_V) for r in requests], device)
        self._top_p_B = _column([r.top_p for r in requests], device)
        self._min_new_B = _column([r.min_new_tokens for r in requests], device)
        self._penalty_B = _column([float(r.repetition_penalty) for r in requests], device)
        self._seen_BV = _seen(requests, eos_V) if bool((self._penalty_B != 1.0).any()) else None
        self._shortest = max((r.min_new_tokens for r in requests), default=0)
        self._note_filters()

    @torch.no_grad()
    def choose(self, logits_BV: Tensor, *, step: int) -> tuple[Tensor, Tensor]:
        """Return the next token of each row and its log-probability, both ``[B]``.

        Args:
            logits_BV: float32.
            step: how many tokens each row has been continued by.
        """
        scores_BV = self._adjusted(logits_BV, step)
        is_plain = scores_BV is logits_BV
        probs_BV = torch.softmax(self._heated(scores_BV), dim=-1)
        tokens_B = self._sampled(scores_BV, probs_BV, step)
        if is_plain:  # the chosen one's probability is above 0: its logarithm is exact enough
            logprobs_B = probs_BV.gather(1, tokens_B[:, None]).log_().squeeze(1)
        else:
            full_BV = torch.log_softmax(self._heated(logits_BV), dim=-1)
            logprobs_B = full_BV.gather(1, tokens_B[:, None]).squeeze(1)
        if self._seen_BV is not None:
            self._seen_BV.scatter_(1, tokens_B[:, None], value=True)
        return tokens_B, logprobs_B

    def keep(self, order_B: Tensor) -> None:
        """Go on with the slots of ``order_B`` only, in that order."""
        self._row_B = self._row_B[order_B]
        self._heat_B = None if self._heat_B is None else self._heat_B[order_B]
        self._greedy_B = self._greedy_B[order_B]
        self._top_k_B = self._top_k_B[order_B]
        self._top_p_B = self._top_p_B[order_B]
        self._min_new_B = self._min_new_B[order_B]
        self._penalty_B = self._penalty_B[order_B]
        self._seen_BV = None if self._seen_BV is None else self._seen_BV[order_B]
        self._note_filters()

    def _note_filters(self) -> None:
        is_cut_B = (self._top_k_B < len(self._eos_V)) | (self._top_p_B < 1.0)
        is_cut_B &= ~self._greedy_B
        self._cut = is_cut_B.nonzero().squeeze(1)
        self._has_cut = len(self._cut) > 0
        self._has_greedy = bool(self._greedy_B.any())
        self._all_greedy = bool(self._greedy_B.all())

    def _heated(self, scores_BV: Tensor) -> Tensor:
        return scores_BV if self._heat_B is None else scores_BV / self._heat_B[:, None]

    def _adjusted(self, logits_BV: Tensor, step: int) -> Tensor:
        scores_BV = logits_BV
        if self._seen_BV is not None:
            penalty_B1 = self._penalty_B[:, None]
            cheaper_BV = torch.where(scores_BV < 0, scores_BV * penalty_B1, scores_BV / penalty_B1)
            scores_BV = torch.where(self._seen_BV, cheaper_BV, scores_BV)
        if step < self._shortest:
            is_barred_BV = (self._min_new_B > step)[:, None] & self._eos_V
            scores_BV = scores_BV.masked_fill(is_barred_BV, float("-inf"))
        return scores_BV

    def _sampled(self, scores_BV: Tensor, probs_BV: Tensor, step: int) -> Tensor:
        if self._all_greedy:
            return scores_BV.argmax(dim=-1)
        uniforms_B = self._uniforms_RT[self._row_B, step]
        tokens_B = search(probs_BV, uniforms_B)
        if self._has_cut:
            cut = self._cut
            tokens_B[cut] = _search_cut(
                probs_BV[cut],
                uniforms_B[cut],
                top_k_B=self._top_k_B[cut],
                top_p_B=self._top_p_B[cut],
            )
        if self._has_greedy:
            tokens_B = torch.where(self._greedy_B, scores_BV.argmax(dim=-1), tokens_B)
        return tokens_B


def search(weights_BV: Tensor, uniforms_B: Tensor) -> Tensor:
    """Return for each row the index that ``u`` of the row's total weight falls into, ``[B]``.

    One cumulative sum and one binary search a row; an index of weight 0 is never returned. Where
    the weights are NaN it is the last index.
    """
    cumulative_BV = weights_BV.cumsum(dim=-1)
    wanted_B1 = uniforms_B[:, None] * cumulative_BV[:, -1:]
    found_B = torch.searchsorted(cumulative_BV, wanted_B1, right=True).squeeze(1)
    return found_B.clamp_(max=weights_BV.shape[1] - 1)


def _search_cut(
    probs_BV: Tensor, uniforms_B: Tensor, *, top_k_B: Tensor, top_p_B: Tensor
) -> Tensor:
    sorted_BV, index_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    ranks_V = torch.arange(probs_BV.shape[1], device=probs_BV.device)
    sorted_BV = sorted_BV.masked_fill(ranks_V >= top_k_B[:, None], 0.0)
    before_BV = sorted_BV.cumsum(dim=-1) - sorted_BV  # probability of the likelier ones
    allowed_B1 = top_p_B[:, None] * sorted_BV.sum(dim=-1, keepdim=True)
    sorted_BV = sorted_BV.masked_fill((before_BV >= allowed_B1) & (ranks_V > 0), 0.0)
    return index_BV.gather(1, search(sorted_BV, uniforms_B)[:, None]).squeeze(1)


def _seen(requests: Sequence[GenerationRequest], eos_V: Tensor) -> Tensor:
    seen_BV = torch.zeros(len(requests), len(eos_V), dtype=torch.bool, device=eos_V.device)
    for row, request in enumerate(requests):
        seen_BV[row, list(request.prompt_token_ids)] = True
    return seen_BV


def _column(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device)
