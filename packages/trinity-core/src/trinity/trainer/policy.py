"""Load a causal language model and score responses with it, without the logits of a whole batch.

B rows of a micro-batch   P packs   L tokens of a pack   R response   N scored tokens
C tokens of a chunk   D width   V vocabulary
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trinity.trainer.microbatch import ModelInputs, pad_to_width
from trinity.trainer.prefix_tree import hidden_states
from trinity.trainer.sharing_trial import find_prefix_sharing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedModel

    from trinity.trainer.prefix_tree import PrefixSharing

MAX_LOGITS = {"cuda": 2**27}  # elements that exist at once; elsewhere 2**24

EntropyUse = bool | None  # None: not computed; False: measured; True: trained on


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a policy is asked for beside log-probabilities, the same on all ranks."""

    entropy: EntropyUse = None
    mean_change: bool = False  # also the mean of S, see score_tokens
    num_passes: int = 0  # of all ranks through the decoder, where the weights are sharded


PLAIN = Wanted()


class TokenScores(NamedTuple):
    """What the model says about tokens: ``[N]`` of those scored, or ``[B, R]``, 0 elsewhere."""

    logprob: Tensor
    entropy: Tensor | None  # None: not asked for
    mean_change: Tensor | None  # None: not asked for

    def map(self, convert: Callable[[Tensor], Tensor]) -> TokenScores:
        """Return the scores, each converted."""
        entropy, change = (None if v is None else convert(v) for v in self[1:])
        return TokenScores(convert(self.logprob), entropy, change)


class Policy:
    """A model that scores responses.

    Args:
        module: the transformers model.
        precision: ``bfloat16`` computes in it; the weights stay as they are.
        device: that it computes on; None: the one that its weights are on.
    """

    def __init__(
        self, module: PreTrainedModel, *, precision: str, device: torch.device | None = None
    ) -> None:
        self.module = module
        self.device = module.device if device is None else device
        self.precision = precision
        self._head = module.get_output_embeddings()
        self._softcap = getattr(module.config, "final_logit_softcapping", None)
        embedding = module.get_input_embeddings()
        is_tied = embedding.weight is getattr(self._head, "weight", None)
        if self.device.type == "cpu" and is_tied and isinstance(embedding, nn.Embedding):
            embedding.sparse = True  # autograd adds its rows to the output layer's gradient

    def states(self, inputs: ModelInputs) -> Tensor:
        """Return ``[N, D]``, the state that each scored token is predicted from."""
        inputs = inputs.to(self.device)
        with self._precision():
            return self.hidden(inputs)[inputs.slots_N]

    @property
    def _chunk_tokens(self) -> int:
        """Return how many tokens' logits may exist at once."""
        most = MAX_LOGITS.get(self.device.type, 2**24) // self.module.config.vocab_size
        embedding = self.module.get_input_embeddings()
        if getattr(embedding, "sparse", False) and embedding.weight.requires_grad:
            most = max(most, embedding.embedding_dim // 3)  # as large as the gradient of each chunk
        return max(1, most)

    def drop_head(self) -> None:
        """Forget the output layer; from now on there are states and no scores."""
        self.module.get_input_embeddings().sparse = False  # without a tied layer, AdamW refuses it
        self._head = nn.Identity()
        self.module.set_output_embeddings(self._head)

    def hidden(self, inputs: ModelInputs) -> Tensor:
        """Return ``[slots, D]``, the last state of each slot that ``slots_N`` counts through."""
        return hidden_states(self.body, inputs)

    def score(self, inputs: ModelInputs, wanted: Wanted = PLAIN) -> TokenScores:
        """Return each scored token's log-probability at its temperature, and what is wanted."""
        inputs = inputs.to(self.device)
        with self._precision():
            scores = score_tokens(
                self.states(inputs),
                inputs.targets_N,
                inputs.temperature_N,
                head=self.logits,
                chunk_tokens=self._chunk_tokens,
                entropy=wanted.entropy,
                mean_change=wanted.mean_change,
            )
        return scores.map(lambda values_N: pad_to_width(values_N, inputs))

    def dummy_pass(self, *, num_passes: int) -> Tensor:
        """Return a 0 that follows from all weights, of as many passes as other ranks make."""
        raise AssertionError(f"a policy that is not sharded makes no {num_passes} dummy passes")

    def enable_checkpointing(self) -> None:
        """Compute activations again in the backward pass; dropout stays off."""
        older_name = "gradient_checkpointing_enable"  # all that earlier transformers 5 know
        module: Any = self.module
        enable = getattr(module, "activation_checkpointing_enable", None)
        (enable or getattr(module, older_name))({"use_reentrant": False})
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
            if hasattr(part, "attention_dropout"):
                part.attention_dropout = 0.0

    @property
    def has_checkpointing(self) -> bool:
        """Return whether :meth:`enable_checkpointing` was called."""
        is_on = getattr(self.module, "is_activation_checkpointing", None)
        return bool(self.module.is_gradient_checkpointing if is_on is None else is_on)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Let activations be computed again, where checkpointing is enabled.

        transformers does it in training mode only.
        """
        self.module.train(self.has_checkpointing)
        try:
            yield
        finally:
            self.module.eval()

    @cached_property
    def sharing(self) -> PrefixSharing:
        """Return how the model computes rows that begin alike as one; tried when first asked."""
        return find_prefix_sharing(self)

    @property
    def is_trained(self) -> bool:
        return any(parameter.requires_grad for parameter in self.module.parameters())

    @property
    def body(self) -> nn.Module:
        """Return the decoder without its output layer."""
        body: nn.Module = self.module.base_model
        return body

    def _precision(self) -> torch.autocast:
        """Return the block in which the model computes in its precision."""
        return torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bfloat16"
        )

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Return ``[N, V]``: what the output layer makes of hidden states."""
        logits_NV = self._head(hidden_ND)
        if self._softcap is None:
            return logits_NV
        return torch.tanh(logits_NV / self._softcap) * self._softcap


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
        torch.cat(logprobs),
        None if entropy is None else torch.cat(entropies),
        torch.cat(changes) if mean_change else None,
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
