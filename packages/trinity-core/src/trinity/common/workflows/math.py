"""Mathematical questions: think, then answer."""

from __future__ import annotations

from trinity.common.workflows.simple import AsyncSimpleWorkflow, SimpleWorkflow

__all__ = ["AsyncMathWorkflow", "MathWorkflow"]

SYSTEM_PROMPT = (
    "You solve mathematical questions. First reason about the question step by step, then state "
    "the result. Put the reasoning between <think> and </think> and the result between <answer> "
    "and </answer>, like this: <think> your reasoning </think> <answer> the result </answer>"
)


class MathWorkflow(SimpleWorkflow):
    """A simple workflow that asks for think and answer tags and scores with ``math_reward``.

    A system prompt in ``format`` replaces the one of this class.
    """

    default_reward_fn = "math_reward"
    default_system_prompt = SYSTEM_PROMPT


class AsyncMathWorkflow(AsyncSimpleWorkflow):
    """The awaiting form."""

    default_reward_fn = "math_reward"
    default_system_prompt = SYSTEM_PROMPT
