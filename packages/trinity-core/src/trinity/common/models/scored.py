"""What a model thinks of a text that it did not write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from torch import Tensor

    from trinity.common.models.settings import ModelSettings
    from trinity.common.ports import RolloutEngine, Scores

__all__ = ["Scored"]


class Scored:
    """The part of a model wrapper that teachers are asked by."""

    _engine: RolloutEngine
    _settings: ModelSettings

    def logprobs(self, tokens: Sequence[int], temperature: float | None = None) -> Tensor:
        """Return what the model thinks of a text: one number for each token but the first.

        Args:
            tokens: ids of the model's tokenizer.
            temperature: None: as the model's settings have it.

        Returns:
            ``[len(tokens) - 1]``, float32: natural log-probabilities under the full softmax, each
            given the tokens before; those of a response begin at ``prompt_length - 1``.

        Raises:
            ModelError: the engine does not provide ``scores``, or the text is too long.
        """
        future = self._score(tokens, temperature)
        try:
            scores = future.result(self._settings.request_timeout_s)
        except TimeoutError as error:
            future.cancel()
            raise self.no_answer() from error
        return _float32(scores)

    async def logprobs_async(
        self, tokens: Sequence[int], temperature: float | None = None
    ) -> Tensor:
        """Return what the model thinks of a text; see :meth:`logprobs`."""
        future = asyncio.wrap_future(self._score(tokens, temperature))
        try:
            return _float32(await asyncio.wait_for(future, self._settings.request_timeout_s))
        except TimeoutError as error:
            raise self.no_answer() from error

    def no_answer(self) -> ModelError:
        """Return the error of an engine that takes too long."""
        return ModelError(
            f"the rollout engine gave no answer in {self._settings.request_timeout_s:.0f} s. "
            f"Is it overloaded? Lower model.max_response_tokens, or send fewer requests at once."
        )

    def _score(self, tokens: Sequence[int], temperature: float | None) -> Future[list[float]]:
        heat = self._settings.temperature if temperature is None else temperature
        return cast("Scores", self._engine).score([int(token) for token in tokens], heat)


def _float32(scores: Sequence[float]) -> Tensor:
    import torch

    return torch.tensor(scores, dtype=torch.float32)
