"""``algorithm.rollout_correction``: what is done where rollout and trainer disagree."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trinity.common.config.base import Lowercase, StrictModel, core, other
from trinity.errors import did_you_mean

__all__ = ["RolloutCorrectionConfig", "RolloutCorrectionSetting"]

_VERL = "trainers of verl"
_WORDS: dict[str, dict[str, str]] = {
    "truncated_importance_sampling": {"rollout_is": "token"},
    "tis": {"rollout_is": "token"},
    "rejection": {"rollout_rs": "geometric"},
}


class RolloutCorrectionConfig(StrictModel):
    """The published dict; a word stands for one: off, truncated_importance_sampling, rejection."""

    rollout_is: Annotated[Literal["token", "sequence"] | None, Lowercase] = core(
        None, "weigh by the ratio of trainer and engine: of each token, or of the response"
    )
    rollout_is_threshold: float = core(2.0, "the largest weight", gt=0)
    rollout_rs: Annotated[Literal["sequence", "geometric"] | None, Lowercase] = core(
        None, "leave out responses by their ratio, or by its geometric mean over the tokens"
    )
    rollout_rs_threshold: float | None = core(
        None, "the largest ratio of a response that stays; default: rollout_is_threshold", gt=0
    )
    rollout_rs_threshold_lower: float | None = core(
        None, "the smallest; default: one by the largest", gt=0
    )
    bypass_mode: bool = other(
        False, "take the rollout's log-probabilities as old ones", used_by=_VERL
    )

    def fields(self) -> dict[str, Any]:  # Any: words and numbers
        """Return what the maths takes."""
        names = set(RolloutCorrectionConfig.model_fields) - {"bypass_mode"}
        return {name: getattr(self, name) for name in sorted(names)}


def _section(value: Any) -> Any:
    """Return the dict that a word stands for; YAML reads a bare ``off`` as false."""
    if value is None or value is False:
        return None
    if not isinstance(value, str):
        return value
    word = value.lower()
    if word == "off":
        return None
    if word not in _WORDS:
        words = ["off", *_WORDS]
        raise ValueError(
            f"{value!r} is no correction.{did_you_mean(value, words)} "
            f"Known: {', '.join(words)}, or a section of rollout_is and rollout_rs"
        )
    return _WORDS[word]


RolloutCorrectionSetting = Annotated[RolloutCorrectionConfig | None, BeforeValidator(_section)]
