"""Score tokens without ever holding the logits of a whole batch.

N scored tokens   C tokens of a chunk   D width   V vocabulary
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["EntropyUse", "TokenScores", "score_tokens"]

EntropyUse = bool | None  # None: not computed; False: measured; True: trained on


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenScores:
    """What the model says about each scored token."""

    logprob_N: Tensor
    entropy_N: Tensor | None  # None: not asked for


def score_tokens(
    hidden_ND: Tensor,
    targets_N: Tensor,
    temperature_N: Tensor | None,
    *,
    head: Callable[[Tensor], Tensor],
    chunk_tokens: int,
    entropy: EntropyUse = None,
) -> TokenScores:
    """Return log-probability and entropy, in nats, under softmax(head(hidden) / temperature).

    Logits exist for ``chunk_tokens`` tokens at a time; with more than one chunk they are computed
    again for the gradient. Softmax and sums are float32 or finer.

    Args:
        hidden_ND: the hidden state that predicts each token.
        targets_N: the tokens.
        temperature_N: the temperature each was sampled at; None: 1.
        head: hidden states to logits.
        chunk_tokens: how many tokens' logits may exist at once.
        entropy: None: skip it; False: without a gradient; True: with one.
    """
    is_recomputed = len(targets_N) > chunk_tokens and torch.is_grad_enabled()
    scored = []
    for start in range(0, max(len(targets_N), 1), chunk_tokens):
        chunk = slice(start, start + chunk_tokens)
        temperature_C = None if temperature_N is None else temperature_N[chunk]
        arguments = (hidden_ND[chunk], targets_N[chunk], temperature_C, head, entropy)
        scored.append(
            checkpoint(_score_chunk, *arguments, use_reentrant=False, preserve_rng_state=False)
            if is_recomputed
            else _score_chunk(*arguments)
        )
    return TokenScores(
        logprob_N=torch.cat([logprob_C for logprob_C, _ in scored]),
        entropy_N=None if entropy is None else torch.cat([entropy_C for _, entropy_C in scored]),
    )


def _score_chunk(
    hidden_CD: Tensor,
    targets_C: Tensor,
    temperature_C: Tensor | None,
    head: Callable[[Tensor], Tensor],
    entropy: EntropyUse,
) -> tuple[Tensor, Tensor | None]:
    logits_CV = head(hidden_CD)
    if logits_CV.dtype in {torch.bfloat16, torch.float16}:
        logits_CV = logits_CV.float()
    if temperature_C is not None:
        logits_CV = logits_CV / temperature_C.to(logits_CV.dtype)[:, None]
    logprobs_CV = logits_CV.log_softmax(-1)
    logprob_C = logprobs_CV.gather(-1, targets_C[:, None]).squeeze(-1)
    if entropy is None:
        return logprob_C, None
    with torch.set_grad_enabled(entropy and torch.is_grad_enabled()):
        return logprob_C, -(logprobs_CV.exp() * logprobs_CV).sum(-1)
