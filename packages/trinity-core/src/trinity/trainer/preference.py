"""Lay the two answers of a pair out as rows of a batch.

prompt | chosen, rejected          prompt chosen      row 2 i
                                   prompt rejected    row 2 i + 1
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trinity.common.experience import Experience
from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

ROWS_OF_PAIR = 2


def as_rows(experiences: Sequence[Experience], *, wants_pairs: bool) -> list[Experience]:
    """Return one experience for each answer: chosen, rejected, chosen, ...

    Args:
        experiences: of prompts with two answers, or of one response each, which stay.
        wants_pairs: the loss compares the answers of a pair.

    Raises:
        DataError: it does, and some rows are no pairs; or it does not, and some are.
    """
    kinds = {experience.is_preference_pair for experience in experiences}
    if kinds == {False} and not wants_pairs:
        return list(experiences)
    if kinds != {True} or not wants_pairs:
        wanted, got = ("pairs", "single answers") if wants_pairs else ("single answers", "pairs")
        raise DataError(
            f"the loss wants {wanted}, and some of the rows are {got}. "
            "Use algorithm_type: dpo for rows of chosen and rejected, and for no others."
        )
    return [
        _row(experience, answer, name=name)
        for experience in experiences
        for name, answer in (("chosen", experience.chosen), ("rejected", experience.rejected))
        if answer is not None
    ]


def _row(experience: Experience, answer: Tensor, *, name: str) -> Experience:
    prompt = experience.tokens[: experience.prompt_length]
    return Experience(
        tokens=torch.cat((prompt, answer)),
        prompt_length=len(prompt),
        eid=replace(experience.eid, suffix=name),
        action_mask=torch.ones(len(answer), dtype=torch.bool),
        temperature=experience.temperature,
        info=experience.info,
    )
