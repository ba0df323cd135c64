"""Which of vLLM's log-probabilities are those that Trinity trains with.

Trinity's are of the full softmax at the sampling temperature, before everything else that changes
what is sampled. vLLM has one mode for a whole engine: ``processed_logprobs`` are behind temperature
and all the rest, ``raw_logprobs`` before everything, the temperature included.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.ports import GenerationRequest

__all__ = ["Mode", "Sampling", "check_mode", "logprobs_mode"]

Mode = Literal["processed_logprobs", "raw_logprobs"]
_LEAST_TEMPERATURE = 0.01  # vLLM samples at this one where a lower one is asked for


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """What decides whether vLLM can say the log-probabilities."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_response_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, request: GenerationRequest) -> Sampling:
        """Return that of a request."""
        return cls(
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            min_p=request.min_p,
            repetition_penalty=request.repetition_penalty,
            presence_penalty=request.presence_penalty,
            frequency_penalty=request.frequency_penalty,
            logit_bias=request.logit_bias,
            min_response_tokens=0 if request.structure else request.min_new_tokens,
        )

    @classmethod
    def among(cls, settings: Mapping[str, Any]) -> Sampling:
        """Return that of an engine's arguments, whatever else is among them."""
        own = (field.name for field in fields(cls))
        return cls(**{name: settings[name] for name in own if name in settings})

    @property
    def is_heated(self) -> bool:
        """Return whether the temperature changes the distribution; greedy sampling has none."""
        return self.temperature not in {0.0, 1.0}

    @property
    def changes(self) -> list[str]:
        """Return the settings beside the temperature that change what is sampled."""
        found = {
            f"top_p {self.top_p}": self.top_p < 1,
            f"top_k {self.top_k}": self.top_k > 0,
            f"min_p {self.min_p}": self.min_p > 0,
            f"repetition_penalty {self.repetition_penalty}": self.repetition_penalty != 1,
            f"presence_penalty {self.presence_penalty}": self.presence_penalty != 0,
            f"frequency_penalty {self.frequency_penalty}": self.frequency_penalty != 0,
            "logit_bias": bool(self.logit_bias),
            f"min_response_tokens {self.min_response_tokens}": self.min_response_tokens > 0,
        }
        return [setting for setting, is_there in found.items() if is_there]


def logprobs_mode(sampling: Sampling) -> Mode:
    """Return the mode for an engine whose requests are mostly of this kind.

    Raises:
        ModelError: neither mode tells what Trinity trains with.
    """
    if not sampling.changes:
        return "processed_logprobs"
    if not sampling.is_heated:
        return "raw_logprobs"
    raise ModelError(
        f"vLLM cannot tell the log-probabilities of the full softmax at temperature "
        f"{sampling.temperature} together with {', '.join(sampling.changes)}. Set "
        f"explorer.rollout_model.temperature to 1, or leave out top_p, top_k, repetition_penalty "
        f"and min_response_tokens."
    )


def check_mode(sampling: Sampling, mode: Mode) -> None:
    """Say why a request's log-probabilities cannot be told, if they cannot.

    Raises:
        ModelError: names the setting.
    """
    if 0 < sampling.temperature < _LEAST_TEMPERATURE:
        raise ModelError(
            f"temperature is {sampling.temperature}; vLLM samples at {_LEAST_TEMPERATURE} at "
            f"least. Use 0 (greedy), or that."
        )
    if mode == "processed_logprobs" and sampling.changes:
        raise ModelError(
            f"{', '.join(sampling.changes)}: this engine was started for requests without (vLLM "
            f"tells log-probabilities in one way for all of them). Set it in "
            f"explorer.rollout_model for the whole run, with temperature 1, or leave it out."
        )
    if mode == "raw_logprobs" and sampling.is_heated:
        raise ModelError(
            f"temperature is {sampling.temperature}: this engine was started for temperature 1 "
            f"(vLLM tells log-probabilities in one way for all requests, and "
            f"explorer.rollout_model cuts what is sampled). Use temperature 1, or no top_p, top_k, "
            f"repetition_penalty and min_response_tokens in explorer.rollout_model."
        )
