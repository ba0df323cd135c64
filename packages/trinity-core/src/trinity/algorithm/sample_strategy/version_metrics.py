"""Say which weights sampled a batch, and show a good and a bad row of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.metrics import aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["representative_samples", "version_metrics"]


def version_metrics(experiences: Sequence[Experience]) -> Metrics:
    """Return the spread of the versions and of how far they lagged; rows of no model have none."""
    numbers = [
        {
            "model_version": exp.info["model_version"],
            "model_version_drift": exp.info.get("model_version_drift") or 0,
        }
        for exp in experiences
        if exp.info.get("model_version") is not None
    ]
    return aggregate(numbers, prefix="sample")


def representative_samples(experiences: Sequence[Experience]) -> list[dict[str, Any]]:
    """Return prompt, response and reward of the first row of least reward and of most.

    Rows without a reward are passed over; where none has one, it is the first row, without it.
    """
    if not experiences:
        return []
    judged = [exp for exp in experiences if exp.reward is not None]
    if not judged:
        return [_texts(experiences[0])]
    worst = min(judged, key=lambda exp: exp.reward or 0.0)
    best = max(judged, key=lambda exp: exp.reward or 0.0)
    return [_texts(exp) | {"reward": exp.reward} for exp in (worst, best)]


def _texts(experience: Experience) -> dict[str, Any]:
    return {"prompt": experience.prompt_text, "response": experience.response_text}
