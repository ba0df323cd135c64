"""Refuse tokens that the model does not have, before it looks them up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trinity.common.experience import Experience


def check_token_ids(rows: Iterable[Experience], *, num_known: int) -> None:
    """Refuse a row with a token id below 0 or beyond the vocabulary.

    Args:
        rows: of a batch.
        num_known: how many tokens the model has.

    Raises:
        DataError: the message names the row.
    """
    for row in rows:
        lowest, highest = (int(bound) for bound in row.tokens.aminmax())
        if lowest >= 0 and highest < num_known:
            continue
        wrong = highest if lowest >= 0 else lowest
        raise DataError(
            f"experience {row.eid} holds the token {wrong}, and the model knows tokens 0 to "
            f"{num_known - 1}. Return the ids that this run's engine sampled; rows of a file must "
            "be tokenised with this model's tokenizer."
        )
