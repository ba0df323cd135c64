"""Other models that judge: who they are, what they are asked, what they said."""

from __future__ import annotations

import ast
import json
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.models.auxiliary import wrapper_of
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows import Task

__all__ = ["WithJudge", "comparison", "first_model", "gold_reward", "listed_scores", "rating"]

_SYSTEM = (
    "You judge fairly. You read one question and {num} candidate solutions, compare how well they "
    "solve it, and give each solution a score in the range [0, 1]."
)
_USER = """Compare the candidate solutions of the question below.

Question: {question}

What a solution has to look like: the reasoning between <think> and </think>, then the final
answer between <answer> and </answer>.

{solutions}

Score each solution in the range [0, 1]. You may reason first, in brief.
End your reply with the list of the scores, in this form:
[score of solution 1, score of solution 2, ..., score of solution {num}]
"""


class WithJudge:
    """Goes before a workflow: ``self.judge`` is ``explorer.auxiliary_models[0]``."""

    conformance_args: ClassVar[dict[str, Any]] = {"num_auxiliary_models": 1}

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        """Take what a workflow takes.

        Raises:
            ConfigError: there is no auxiliary model.
        """
        self.judge = first_model(auxiliary_models, name=type(self).__name__, role="judge")
        workflow: Any = super()  # the class that this one goes before
        workflow.__init__(task=task, model=model, auxiliary_models=auxiliary_models)

    def verdict(self, instructions: str, case: str, **options: Any) -> str:
        """Return what the judge says of a case (Any: how it is asked, as ``chat`` takes it)."""
        asked = [{"role": "system", "content": instructions}, {"role": "user", "content": case}]
        return self.judge.chat(asked, n=1, **options)[0].response_text or ""


def first_model(given: Sequence[Any] | None, *, name: str, role: str) -> ModelWrapper:
    """Return the first auxiliary model.

    Args:
        given: what the workflow was built with (Any: a client, or its wrapper).
        name: of the workflow.
        role: what the model is to it.

    Raises:
        ConfigError: there is none.
    """
    if not given:
        raise ConfigError(
            f"{name} needs auxiliary models: its {role} is explorer.auxiliary_models[0], and the "
            f"list is empty. Name a model there."
        )
    model: ModelWrapper = wrapper_of(given[0])
    return model


def gold_reward(response: Experience, scores: Mapping[str, float]) -> float:
    """Return the sum of a reward function's scores; both are metrics of the response."""
    gold = sum(scores.values(), 0.0)
    response.metrics = {**(response.metrics or {}), **scores, "gold_reward": gold}
    return gold


def comparison(question: object, solutions: Sequence[str]) -> list[dict[str, str]]:
    """Return the messages that ask a judge to score the solutions of a question."""
    num = len(solutions)
    shown = "\n\n".join(f"Candidate solution {n}: {text}" for n, text in enumerate(solutions, 1))
    return [
        {"role": "system", "content": _SYSTEM.format(num=num)},
        {"role": "user", "content": _USER.format(question=question, solutions=shown, num=num)},
    ]


def listed_scores(reply: str, *, num: int) -> list[float] | None:
    """Return the last list of a judge's reply, each score cut to [0, 1].

    None: there is no list of so many numbers.

    >>> listed_scores("The first is right: [1.5, 0.25]", num=2)
    [1.0, 0.25]
    """
    start, end = reply.rfind("["), reply.rfind("]")
    try:
        values = ast.literal_eval(reply[start : end + 1]) if 0 <= start < end else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(values, list) or len(values) != num or not all(map(_is_number, values)):
        return None
    return [max(0.0, min(1.0, float(value))) for value in values]


def rating(reply: str) -> float | None:
    """Return a tenth of the rating from 1 to 10 in a judge's block of json; None: there is none.

    >>> rating('```json {"rating": 7} ```')
    0.7
    """
    _, fence, rest = reply.partition("```")
    body, end, _ = rest.removeprefix("json").partition("```")
    if not fence or not end:
        return None
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    value: Any = parsed.get("rating") if isinstance(parsed, dict) else None
    return value / 10 if _is_number(value) and 1 <= value <= 10 else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
