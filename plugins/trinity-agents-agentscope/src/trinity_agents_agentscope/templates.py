"""What an agent is told, what it answers with, and what that is worth, by the kind of task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field
from trinity.common.rewards import MathBoxedRewardFn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.rewards import RewardFn

__all__ = [
    "TEMPLATE_MAP",
    "GSM8KResponseStructure",
    "GSM8KRewardFn",
    "GSM8KSystemPrompt",
    "Template",
]

GSM8KSystemPrompt = (  # published name
    "You are an agent that solves mathematical questions. You may use tools to compute or to "
    "check. The final answer stands inside \\boxed{}."
)


class GSM8KResponseStructure(BaseModel):
    """The answer to a mathematical question."""

    result: str = Field(
        description="The solution, with the final answer in a box, such as \\boxed{42}."
    )


class GSM8KRewardFn(MathBoxedRewardFn):
    """Compares the box in ``response["result"]`` with the truth, or with what follows ``####``."""

    def __call__(  # type: ignore[override]  # published: the response is a structure
        self,
        response: Mapping[str, Any],
        truth: str,
        format_score_coef: float = 0.1,
        **kwargs: Any,
    ) -> dict[str, float]:
        """Return accuracy and form of an answer; one without ``result`` is empty."""
        return super().__call__(
            response=str(response.get("result", "")),
            truth=str(truth).rpartition("####")[2].strip(),
            with_think=False,
            format_score_coef=format_score_coef,
            **kwargs,
        )


@dataclass(frozen=True)
class Template:
    """What belongs to a kind of task."""

    system_prompt: str
    response_structure: type[BaseModel]
    reward_fn_cls: type[RewardFn]


TEMPLATE_MAP: dict[str, Template | None] = {
    "gsm8k": Template(
        system_prompt=GSM8KSystemPrompt,
        response_structure=GSM8KResponseStructure,
        reward_fn_cls=GSM8KRewardFn,
    )
}
