"""``trinity.algorithm.sample_strategy.utils``: two experiences of a batch for a person to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience

__all__ = ["representative_sample"]


def representative_sample(experiences: Sequence[Experience]) -> list[dict[str, Any]]:
    """Return the texts of the experiences of lowest and of highest reward, with it.

    Without rewards (supervised rows): those of the first, so that a repeated run says the same.
    """
    scored = [(exp.reward, exp) for exp in experiences if exp.reward is not None]
    if not scored:
        return [_texts(exp) for exp in experiences[:1]]
    chosen = [min(scored, key=_reward), max(scored, key=_reward)]
    return [_texts(experience) | {"reward": reward} for reward, experience in chosen]


def _reward(scored: tuple[float, Experience]) -> float:
    return scored[0]


def _texts(experience: Experience) -> dict[str, Any]:
    return {"prompt": experience.prompt_text, "response": experience.response_text}
