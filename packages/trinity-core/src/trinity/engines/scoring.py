"""Score given texts with an engine's model: L tokens of a text   V vocabulary."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from transformers import DynamicCache

from trinity.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PIECE = 512  # tokens of one forward: the logits of more would not fit for a large vocabulary


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _ScoreRequest:
    token_ids: tuple[int, ...]
    temperature: float
    future: Future[list[float]] = field(default_factory=Future)


class Scoring:
    """The texts that wait to be scored; any thread adds, the engine's thread scores."""

    def __init__(self) -> None:
        self._asked: deque[_ScoreRequest] = deque()

    def add(self, token_ids: tuple[int, ...], *, temperature: float) -> Future[list[float]]:
        """Queue a text; :meth:`run` has to be called some time later."""
        asked = _ScoreRequest(token_ids=token_ids, temperature=temperature)
        self._asked.append(asked)
        return asked.future

    def run(self, module: PreTrainedModel) -> None:
        while self._asked:
            asked = self._asked.popleft()
            if not asked.future.set_running_or_notify_cancel():
                continue
            try:
                scores = token_logprobs(module, asked.token_ids, temperature=asked.temperature)
            except Exception as error:  # noqa: BLE001 -- of this text; the engine lives on
                what = f"the text could not be scored: {type(error).__name__}: {error}"
                failure = ModelError(what)
                failure.__cause__ = error
                asked.future.set_exception(failure)
            else:
                asked.future.set_result(scores)

    def fail(self, error: ModelError) -> None:
        while self._asked:
            asked = self._asked.popleft()
            if asked.future.set_running_or_notify_cancel():
                asked.future.set_exception(error)


def check_scored(token_ids: tuple[int, ...], *, max_model_len: int, vocab: int) -> None:
    """Say why a text cannot be scored, if it cannot.

    Raises:
        ModelError: it is too short or too long, or holds unknown tokens.
    """
    if not 2 <= len(token_ids) <= max_model_len:
        raise ModelError(
            f"a text of {len(token_ids)} tokens cannot be scored: it needs 2 to "
            f"{max_model_len} tokens (max_model_len). Shorten it, or raise model.max_model_len."
        )
    if not (min(token_ids) >= 0 and max(token_ids) < vocab):
        raise ModelError(
            f"the text to score has a token id outside of the vocabulary, 0 to {vocab - 1}. "
            f"Teacher and trained model need the same tokenizer."
        )


@torch.no_grad()
def token_logprobs(
    module: PreTrainedModel, token_ids: tuple[int, ...], *, temperature: float
) -> list[float]:
    """Return the log-probability of each token but the first, given those before it, in nats.

    Under the full softmax at the temperature; at temperature 0, as at 1.
    """
    ids_BL = torch.tensor([token_ids], device=module.device)
    cache, scores = DynamicCache(), []
    for start in range(0, len(token_ids) - 1, _PIECE):
        end = min(start + _PIECE, len(token_ids) - 1)
        output = module(input_ids=ids_BL[:, start:end], past_key_values=cache, use_cache=True)
        logprobs_LV = (output.logits[0].float() / (temperature or 1.0)).log_softmax(dim=-1)
        scores += logprobs_LV.gather(1, ids_BL[0, start + 1 : end + 1, None])[:, 0].tolist()
    return scores
