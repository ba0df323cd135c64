"""The reward of RM-Gallery that needs no model: is the answer right?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from trinity.common.rewards import RewardFn

from trinity_compat_rft.answers import accuracy

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["RMGalleryFn"]


class RMGalleryFn(RewardFn):
    """Gives 1 for a right answer of mathematics, else 0; other rewards of RM-Gallery ask models.

    Args:
        reward_name: the one that can be computed here.
    """

    def __init__(self, reward_name: Literal["math_verify_reward"] = "math_verify_reward") -> None:
        self.reward_name = reward_name

    def __call__(  # the published order
        self,
        response: str | Experience,
        messages: object = None,
        ground_truth: object = None,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Return ``accuracy``.

        Args:
            response: an experience, or its text.
            messages: what was asked; not looked at.
            ground_truth: the right answer; None: ``truth`` is.
            kwargs: ``truth``, as other workflows call it.
        """
        text = response if isinstance(response, str) else response.response_text or ""
        truth = kwargs.get("truth") if ground_truth is None else ground_truth
        return {"accuracy": 0.0 if truth is None else accuracy(text, truth=truth)}
