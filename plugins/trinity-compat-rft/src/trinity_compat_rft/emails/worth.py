"""What the answer of a mail search is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from trinity_compat_rft.emails.records import FinalRubric, QueryModel

__all__ = ["judge_correctness", "worth"]

FOUND = 0.1  # for each of: the right mail found, read, named
JUDGE_PROMPT = """You compare an answer with the reference answer to the same question.
1. What exactly does the question ask for?
2. Which facts of the reference answer are needed to say it? The others do not count.
3. Does the answer say each of these facts, in whatever words, and contradicts none?
Reply with the word true if it does, else with the word false, and with nothing else."""


async def judge_correctness(answer: str, query: QueryModel, judge: AsyncOpenAI) -> bool:
    """Return whether a judge finds the answer right; ``judge.model_path`` is its name."""
    asked: list[Any] = [
        {"role": "system", "content": JUDGE_PROMPT},
        {
            "role": "user",
            "content": f"Question: {query.question}\nReference answer: {query.answer}\n"
            f"Answer: {answer}",
        },
    ]
    name: str = judge.model_path  # type: ignore[attr-defined]  # published
    reply = await judge.chat.completions.create(model=name, messages=asked)
    return "true" in (reply.choices[0].message.content or "").lower()


def worth(rubric: FinalRubric, *, max_turns: int) -> dict[str, float]:
    """Return the reward in two parts, ``accuracy`` and ``format``.

    A right answer: 1 and 1, with 0.3 more for naming the right mail, 0.1 over the number of mails
    named, 0.1 for the share of turns that were not needed. A wrong one: -1, and 0.1 each for the
    right mail found, read and named. "I don't know" that is no wrong answer: these alone.
    """
    steps = (
        rubric.ever_found_right_email,
        rubric.ever_read_right_email,
        rubric.sources_correct,
    )
    partial = FOUND * sum(steps)
    if rubric.attempted_answer and not rubric.answer_correct:
        return {"accuracy": -1.0, "format": partial}
    if rubric.returned_i_dont_know or rubric.ran_out_of_turns:
        return {"accuracy": 0.0, "format": partial}
    if not rubric.answer_correct:
        return {"accuracy": 0.0, "format": 0.0}
    share = FOUND / rubric.num_sources if rubric.num_sources else 0.0
    saved = FOUND * (1.0 - rubric.num_turns / max_turns)
    return {"accuracy": 1.0, "format": 1.0 + 0.3 * rubric.sources_correct + share + saved}
