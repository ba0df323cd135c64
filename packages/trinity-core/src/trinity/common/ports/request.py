"""What an engine is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.common.ports.weights import WeightVersion

__all__ = ["Completion", "GenerationRequest", "RunKey"]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class RunKey:
    """Which request this is: orders requests of a step and seeds their randomness.

    ``batch`` is the explore step (an evaluation uses ``"eval/<step>/<taskset>"``), ``attempt``
    counts retries after an error, from 1.
    """

    batch: str = "0"
    task: int = 0
    run: int = 0
    request: int = 0
    attempt: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One prompt to be continued ``n`` times. The prompt is prefilled once."""

    prompt_token_ids: tuple[int, ...]
    key: RunKey = field(default_factory=RunKey)
    n: int = 1
    temperature: float = 1.0  # 0: greedy
    top_p: float = 1.0
    top_k: int = -1  # -1: no limit
    max_new_tokens: int = 16
    min_new_tokens: int = 0
    repetition_penalty: float = 1.0
    ignore_eos: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One sampled continuation.

    ``logprobs`` are natural log-probabilities of the sampled tokens under the full softmax at the
    sampling temperature, before top-k and top-p (at temperature 0: at temperature 1).
    """

    token_ids: tuple[int, ...]  # the EOS token, if the model ended by one, is the last
    logprobs: tuple[float, ...]
    finish_reason: str  # "stop": ended by EOS; "length": max_new_tokens or the context is used up
    weight_version: WeightVersion
