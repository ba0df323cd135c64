"""One builder for each noun: a test states only what matters to it.

All values are fixed, ids included, so that two calls with the same arguments give equal things.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.batch import ExperienceBatch
from trinity.common.experience import EID, Experience

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.workflows import Task

__all__ = ["a_batch", "a_group", "a_task", "an_experience"]

QUESTION = "What is 40 + 6?"
TRUTH = "46"
LOGPROB = -0.5


def an_experience(  # noqa: PLR0913 - the options of a builder
    *,
    prompt: Sequence[int] = (1, 2),
    response: Sequence[int] = (3, 4, 5),
    reward: float | None = 0.0,
    batch: int | str = 0,
    task: int | str = 0,
    run: int = 0,
    step: int = 0,
    **fields: Any,
) -> Experience:
    """Return an experience with these tokens; each token's log-probability is -0.5 unless given.

    >>> an_experience(response=(7, 8), reward=1.0, task=3).eid.tid
    '0/3'
    """
    fields.setdefault("logprobs", [LOGPROB] * len(response))
    fields.setdefault("action_mask", [True] * len(response))
    return Experience(
        tokens=[*prompt, *response],  # type: ignore[arg-type] # lists become tensors
        prompt_length=len(prompt),
        eid=fields.pop("eid", EID(batch=batch, task=task, run=run, step=step)),
        reward=reward,
        **fields,
    )


def a_group(
    rewards: Sequence[float] = (1.0, 0.0), *, task: int = 0, batch: int = 0, **fields: Any
) -> list[Experience]:
    """Return the runs of one task, with responses of two, three, four, two, ... tokens."""
    return [
        an_experience(
            response=[3 + (task + run + place) % 5 for place in range(2 + run % 3)],
            reward=reward,
            batch=batch,
            task=task,
            run=run,
            **fields,
        )
        for run, reward in enumerate(rewards)
    ]


def a_batch(
    rewards: Sequence[Sequence[float]] = ((1.0, 0.0), (0.5, 0.5)),
    *,
    num_steps: int = 1,
    **fields: Any,
) -> ExperienceBatch:
    """Return the batch of these groups; ``num_steps`` rows a run; ``fields`` go to each row.

    >>> len(a_batch(rewards=((1.0, 0.0, 0.0), (1.0,))))
    4
    """
    rows = [
        experience
        for task, group in enumerate(rewards)
        for experience in a_group(group, task=task, **fields)
    ]
    if num_steps > 1:
        rows = [_at_step(row, step) for row in rows for step in range(num_steps)]
    return ExperienceBatch.from_experiences(rows)


def a_task(question: str = QUESTION, *, truth: str = TRUTH, **fields: Any) -> Task:
    """Return a task whose row is ``{"question": question, "answer": truth}`` unless given.

    >>> a_task("2 * 2?", truth="4").truth
    '4'
    """
    from trinity.common.config import FormatConfig
    from trinity.common.workflows import Task

    fields.setdefault("raw_task", {"question": question, "answer": truth})
    fields.setdefault("format_args", FormatConfig(prompt_key="question", response_key="answer"))
    return Task(**fields)


def _at_step(experience: Experience, step: int) -> Experience:
    row = experience.to_dict() | {"eid": experience.eid.with_step(step)}
    return Experience.from_dict(row)
