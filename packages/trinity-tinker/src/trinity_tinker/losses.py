"""The losses of the protocol: sums over the positions of all datums, never means.

r = exp(logprob - sampled logprob)      A advantages      sg(...) has no gradient

    cross_entropy         -w * logprob
    importance_sampling   -r * A
    ppo                   -min(r * A, clip(r) * A)                               arXiv 1707.06347
    cispo                 -sg(clip(r)) * logprob * A                             arXiv 2506.13585
    dro                   -(logprob * A - beta / 2 * (logprob - sampled)^2)      arXiv 2405.19107
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trinity_tinker.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    Fields = Mapping[str, Tensor]
    Formula = Callable[[Tensor, Fields, Mapping[str, float]], Tensor]

__all__ = ["LOSSES", "Loss", "loss_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """One loss, and what it takes."""

    formula: Formula
    inputs: tuple[str, ...]  # beside target_tokens; each is needed
    settings: Mapping[str, float | None]  # None: it has no default

    def settings_with(self, name: str, given: Mapping[str, float | str]) -> dict[str, float]:
        """Return all settings of the loss.

        Raises:
            Refused: one is unknown or missing, is a text, or does not fit.
        """
        for key, value in given.items():
            if key not in self.settings:
                known = ", ".join(self.settings) or "none"
                raise Refused(f"the loss {name} has no setting {key!r}; its settings: {known}.")
            if isinstance(value, str):
                raise Refused(f"the setting {key!r} of the loss {name} is a number, not {value!r}.")
        merged = dict(self.settings) | dict(given)
        settings = {key: float(value) for key, value in merged.items() if value is not None}
        missing = sorted(set(merged) - set(settings))
        if missing:
            raise Refused(f"the loss {name} needs the setting {missing[0]!r}; it has no default.")
        low, high = (
            settings.get("clip_low_threshold", 0.0),
            settings.get("clip_high_threshold", 1.0),
        )
        if not 0.0 <= low <= high:
            raise Refused(f"clip_low_threshold {low} and clip_high_threshold {high} clip nothing.")
        return settings


def loss_of(name: str) -> Loss:
    """Return a loss by its name.

    Raises:
        Refused: there is none.
    """
    if name in LOSSES:
        return LOSSES[name]
    if name in _KNOWN_ELSEWHERE:
        raise Refused(f"the loss {name!r} is not implemented here: {_KNOWN_ELSEWHERE[name]}")
    raise Refused(f"there is no loss {name!r}; there are {', '.join(LOSSES)}.")


def _cross_entropy(logprob_N: Tensor, fields: Fields, settings: Mapping[str, float]) -> Tensor:
    del settings
    return -(fields["weights"] * logprob_N).sum()


def _importance_sampling(
    logprob_N: Tensor, fields: Fields, settings: Mapping[str, float]
) -> Tensor:
    del settings
    return -(_ratio(logprob_N, fields) * fields["advantages"]).sum()


def _ppo(logprob_N: Tensor, fields: Fields, settings: Mapping[str, float]) -> Tensor:
    ratio_N, advantages_N = _ratio(logprob_N, fields), fields["advantages"]
    clipped_N = _clipped(ratio_N, settings)
    return -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N).sum()


def _cispo(logprob_N: Tensor, fields: Fields, settings: Mapping[str, float]) -> Tensor:
    clipped_N = _clipped(_ratio(logprob_N, fields), settings).detach()
    return -(clipped_N * logprob_N * fields["advantages"]).sum()


def _dro(logprob_N: Tensor, fields: Fields, settings: Mapping[str, float]) -> Tensor:
    change_N = logprob_N - fields["logprobs"]
    quadratic_N = settings["beta"] / 2 * change_N.square()
    return -(logprob_N * fields["advantages"] - quadratic_N).sum()


def _ratio(logprob_N: Tensor, fields: Fields) -> Tensor:
    return (logprob_N - fields["logprobs"]).exp()


def _clipped(ratio_N: Tensor, settings: Mapping[str, float]) -> Tensor:
    return ratio_N.clamp(settings["clip_low_threshold"], settings["clip_high_threshold"])


_SAMPLED = ("logprobs", "advantages")
_CLIPS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
LOSSES = {
    "cross_entropy": Loss(formula=_cross_entropy, inputs=("weights",), settings={}),
    "importance_sampling": Loss(formula=_importance_sampling, inputs=_SAMPLED, settings={}),
    "ppo": Loss(formula=_ppo, inputs=_SAMPLED, settings=_CLIPS),
    "cispo": Loss(formula=_cispo, inputs=_SAMPLED, settings=_CLIPS),
    "dro": Loss(formula=_dro, inputs=_SAMPLED, settings={"beta": None}),
}
_UNDOCUMENTED = "its formula is not documented. Write it with forward_backward_custom."
_KNOWN_ELSEWHERE = {
    "gspo": _UNDOCUMENTED,
    "stable_reinforce": _UNDOCUMENTED,
    "custom": "custom losses run in the client here; forward_backward_custom does so by itself.",
}
