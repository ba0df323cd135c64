"""What every rollout engine does with a request: refuse it, give it up."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from trinity.common.ports import GenerationRequest

__all__ = ["PendingReply", "begins", "check_prompt", "check_request", "fail"]


def check_request(
    request: GenerationRequest, *, max_model_len: int, vocab: int, adapters: Container[str] = ()
) -> None:
    """Say what is wrong with the request, if anything is.

    Raises:
        ModelError: the prompt is empty, too long or holds unknown tokens, or a setting is out of
            range.
    """
    check_prompt(request.prompt_token_ids, max_model_len=max_model_len, vocab=vocab)
    ranges = {
        "n": (request.n >= 1, "at least 1"),
        "temperature": (request.temperature >= 0, "0 (greedy) or more"),
        "top_p": (0 < request.top_p <= 1, "above 0 and at most 1"),
        "top_k": (request.top_k >= -1, "-1 (no limit) or more"),
        "min_p": (0 <= request.min_p <= 1, "0 (no limit) to 1"),
        "max_new_tokens": (request.max_new_tokens >= 1, "at least 1"),
        "min_new_tokens": (request.min_new_tokens >= 0, "0 or more"),
        "repetition_penalty": (request.repetition_penalty > 0, "above 0"),
        "presence_penalty": (-2 <= request.presence_penalty <= 2, "from -2 to 2"),
        "frequency_penalty": (-2 <= request.frequency_penalty <= 2, "from -2 to 2"),
        "logit_bias": (
            all(0 <= token < vocab and -100 <= b <= 100 for token, b in request.logit_bias),
            f"tokens below {vocab} with numbers from -100 to 100",
        ),
        "adapter": (
            not request.adapter or request.adapter in adapters,
            "one that the engine has now: it was never added, or was removed",
        ),
    }
    for name, (is_right, wanted) in ranges.items():
        if not is_right:
            raise ModelError(f"{name} is {getattr(request, name)}; it must be {wanted}.")
    _check_stops(request, vocab=vocab)


def check_prompt(prompt: tuple[int, ...], *, max_model_len: int, vocab: int) -> None:
    """Say why the tokens cannot be gone on from, if they cannot.

    Raises:
        ModelError: they are none, too many, or not of this model.
    """
    if not prompt:
        raise ModelError("the prompt is empty; a model needs one token at least to go on from.")
    if len(prompt) >= max_model_len:
        raise ModelError(
            f"the prompt has {len(prompt)} tokens, which leaves no room for a reply in "
            f"max_model_len {max_model_len}. Shorten the prompt, lower model.max_prompt_tokens, "
            f"or raise model.max_model_len."
        )
    if not (min(prompt) >= 0 and max(prompt) < vocab):
        raise ModelError(
            f"the prompt holds token {min(prompt) if min(prompt) < 0 else max(prompt)}, but the "
            f"model knows tokens 0 to {vocab - 1}. Tokenizer and model belong to different models."
        )


def _check_stops(request: GenerationRequest, *, vocab: int) -> None:
    stop = request.stop
    if isinstance(stop, str) or not all(isinstance(one, str) and one for one in stop):
        raise ModelError(f"stop is {stop!r}; it must be a tuple of texts that are not empty.")
    if not all(0 <= token < vocab for token in request.stop_token_ids):
        raise ModelError(
            f"stop_token_ids is {request.stop_token_ids}; the model knows tokens 0 to {vocab - 1}."
        )


Answer = TypeVar("Answer")  # completions, or scores


class PendingReply(Future[Answer], Generic[Answer]):
    """As any future, but :meth:`cancel` also ends what is running.

    Args:
        on_cancel: called, in the thread of whom cancels, once the reply is given up.
    """

    def __init__(self, *, on_cancel: Callable[[], None]) -> None:
        super().__init__()
        self._on_cancel = on_cancel

    def cancel(self) -> bool:
        """Give the request up; return whether it had no answer yet."""
        if not super().cancel():
            try:
                self.set_exception(CancelledError())
            except InvalidStateError:  # it was answered
                return False
        self._on_cancel()
        return True


def begins(future: Future[Any]) -> bool:  # Any: completions, or scores
    """Return whether a reply is to be computed now: it was not given up, and has no answer."""
    if future.done() and not future.cancelled():
        return False
    try:
        return future.set_running_or_notify_cancel()
    except RuntimeError:  # it was answered in this moment
        return False


def fail(future: Future[Any], error: BaseException) -> None:  # Any: completions, or scores
    """Answer with an error, unless the reply was given up or has an answer."""
    with suppress(InvalidStateError):
        future.set_exception(error)
