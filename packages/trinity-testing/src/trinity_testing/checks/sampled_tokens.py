"""Compare what is trained on with what an engine sampled."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.common.experience import Experience

    from trinity_testing.engines import Exchange

__all__ = ["not_as_sampled", "trained_spans", "unsampled"]


def trained_spans(experience: Experience) -> list[tuple[int, int]]:
    """Return start and end, in ``tokens``, of each unbroken run of the model's own tokens."""
    num = len(experience.tokens) - experience.prompt_length
    mask = [True] * num if experience.action_mask is None else experience.action_mask.tolist()
    edges = [False, *mask, False]
    changes = [place for place in range(num + 1) if edges[place] != edges[place + 1]]
    places = [experience.prompt_length + place for place in changes]
    return list(zip(places[::2], places[1::2], strict=True))


def unsampled(experience: Experience, span: tuple[int, int], exchanges: Sequence[Exchange]) -> str:
    """Return what of the span no engine sampled, in words; an empty string if all was.

    A completion may have been cut, at either end, but not changed.
    """
    start, end = span
    tokens = tuple(experience.tokens.tolist())
    said = [
        logprobs
        for exchange in exchanges
        for logprobs in _said_here(exchange, tokens, start=start, end=end)
    ]
    if not said:
        return f"no request was answered with its tokens {start} to {end - 1} after that prompt"
    if experience.logprobs is None:
        return ""
    first = experience.prompt_length
    given = experience.logprobs[start - first : end - first].tolist()
    if any(_are_close(given, logprobs) for logprobs in said):
        return ""
    return f"the log-probabilities of its tokens {start} to {end - 1} are not the engine's"


def _said_here(
    exchange: Exchange, tokens: tuple[int, ...], *, start: int, end: int
) -> Iterator[Sequence[float]]:
    """Give the log-probabilities of each completion that holds these tokens at this place."""
    prompt = tuple(exchange.request.prompt_token_ids)
    begin = len(prompt)
    if begin > start or tokens[:begin] != prompt:
        return
    for completion in exchange.completions:
        if completion.token_ids[start - begin : end - begin] == tokens[start:end]:
            yield completion.logprobs[start - begin : end - begin]


def _are_close(first: Sequence[float], second: Sequence[float]) -> bool:
    return all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(first, second, strict=True))


def not_as_sampled(experiences: Sequence[Experience], exchanges: Sequence[Exchange]) -> str:
    """Return in words how the trained tokens of a run differ from the sampled; empty: not at all.

    Each sampled token is trained once, in its order, after the prompt that it was sampled after,
    with its log-probability.

    Args:
        experiences: of one run, in their order.
        exchanges: all of that run.
    """
    asked = sorted(exchanges, key=lambda exchange: exchange.request.key)
    sampled = [c for exchange in asked for c in exchange.completions]
    wanted = [token for completion in sampled for token in completion.token_ids]
    trained: list[int] = []
    for place, experience in enumerate(experiences):
        for start, end in trained_spans(experience):
            trained += experience.tokens[start:end].tolist()
            problem = unsampled(experience, (start, end), exchanges)
            if problem:
                return f"experience {place}: {problem}"
    if trained == wanted:
        return ""
    return f"{len(wanted)} tokens were sampled, and {len(trained)} others are trained"
