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

EntropyUse = bool | None  # None: not computed; False: measured; True: trained on


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenScores:
    """What the model says about each scored token."""

    logprob_N: Tensor
    entropy_N: Tensor | None  # None: not asked for
    mean_change_N: Tensor | None = None  # None: not asked for


def score_tokens(  # noqa: PLR0913 -- what is asked for, one by one
    hidden_ND: Tensor,
    targets_N: Tensor,
    temperature_N: Tensor | None,
    *,
    head: Callable[[Tensor], Tensor],
    chunk_tokens: int,
    entropy: EntropyUse = None,
    mean_change: bool = False,
) -> TokenScores:
    """Return log-probability and entropy, in nats, under softmax(head(hidden) / temperature).

    A token's S = p (H + log p) is how fast the entropy H falls where the token is learned
    (arXiv 2602.03392); its mean over the policy, sum(p S), is what learning any token changes.

    Logits exist for ``chunk_tokens`` tokens at a time; with more than one chunk they are computed
    again for the gradient. Softmax and sums are float32 or finer.

    Args:
        hidden_ND: the hidden state that predicts each token.
        targets_N: the tokens.
        temperature_N: the temperature each was sampled at; None: 1.
        head: hidden states to logits.
        chunk_tokens: how many tokens' logits may exist at once.
        entropy: None: skip it; False: without a gradient; True: with one.
        mean_change: also return the mean of S, without a gradient; ``entropy`` is not None.
    """
    is_recomputed = len(targets_N) > chunk_tokens and torch.is_grad_enabled()
    scored = []
    for start in range(0, max(len(targets_N), 1), chunk_tokens):
        chunk = slice(start, start + chunk_tokens)
        temperature_C = None if temperature_N is None else temperature_N[chunk]
        arguments = (hidden_ND[chunk], targets_N[chunk], temperature_C, head, entropy, mean_change)
        scored.append(
            checkpoint(_score_chunk, *arguments, use_reentrant=False, preserve_rng_state=False)
            if is_recomputed
            else _score_chunk(*arguments)
        )
    logprobs, entropies, changes = zip(*scored, strict=True)
    return TokenScores(
        logprob_N=torch.cat(logprobs),
        entropy_N=None if entropy is None else torch.cat(entropies),
        mean_change_N=torch.cat(changes) if mean_change else None,
    )


def _score_chunk(
    hidden_CD: Tensor,
    targets_C: Tensor,
    temperature_C: Tensor | None,
    head: Callable[[Tensor], Tensor],
    entropy: EntropyUse,
    mean_change: bool,  # noqa: FBT001 -- given by position, as checkpoint() does
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    logits_CV = head(hidden_CD)
    if logits_CV.dtype in {torch.bfloat16, torch.float16}:
        logits_CV = logits_CV.float()
    if temperature_C is not None:
        logits_CV = logits_CV / temperature_C.to(logits_CV.dtype)[:, None]
    logprobs_CV = logits_CV.log_softmax(-1)
    logprob_C = logprobs_CV.gather(-1, targets_C[:, None]).squeeze(-1)
    if entropy is None:
        return logprob_C, None, None
    with torch.set_grad_enabled(entropy and torch.is_grad_enabled()):
        entropy_C = -(logprobs_CV.exp() * logprobs_CV).sum(-1)
    return logprob_C, entropy_C, _mean_change(logprobs_CV, entropy_C) if mean_change else None


@torch.no_grad()
def _mean_change(logprobs_CV: Tensor, entropy_C: Tensor) -> Tensor:
    """Return sum(p^2 (H + log p)) over the vocabulary."""
    return ((2 * logprobs_CV).exp() * (entropy_C[:, None] + logprobs_CV)).sum(-1)
