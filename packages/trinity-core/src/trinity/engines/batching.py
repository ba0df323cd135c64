"""Cuts the waiting requests into batches that fit."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from trinity.engines.rows import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.ports import GenerationRequest

__all__ = ["batches"]


def batches(
    requests: Sequence[GenerationRequest], *, max_rows: int, max_tokens: int, max_model_len: int
) -> list[list[Row]]:
    """Return the rows of the requests in batches, a function of the requests and their order alone.

    A request is cut only where it alone is over a bound. Requests of two explore steps, or of an
    evaluation and an explore step, never share a batch.

    Args:
        requests: in the order of their keys.
        max_rows: rows of one batch.
        max_tokens: of one batch, every row as long as its batch's longest prompt and reply.
        max_model_len: context of the model: bounds the replies.
    """
    cut: list[list[Row]] = []
    for _, same_step in groupby(enumerate(requests), key=lambda pair: pair[1].key.batch):
        batch: list[Row] = []
        for source, request in same_step:
            rows = _rows(source, request, max_model_len)
            if batch and not _fits([*batch, *rows], max_rows, max_tokens):
                cut.append(batch)
                batch = []
            batch += rows
            while not _fits(batch, max_rows, max_tokens):
                count = max(1, min(max_rows, max_tokens // _width(batch)))
                cut.append(batch[:count])
                batch = batch[count:]
        cut.append(batch)
    return cut


def _rows(source: int, request: GenerationRequest, max_model_len: int) -> list[Row]:
    limit = min(request.max_new_tokens, max_model_len - len(request.prompt_token_ids))
    return [
        Row(source=source, request=request, sample=sample, limit=limit)
        for sample in range(request.n)
    ]


def _fits(rows: Sequence[Row], max_rows: int, max_tokens: int) -> bool:
    if len(rows) <= 1:
        return True
    return len(rows) <= max_rows and len(rows) * _width(rows) <= max_tokens


def _width(rows: Sequence[Row]) -> int:
    prompt = max(len(row.request.prompt_token_ids) for row in rows)
    return prompt + max(row.limit for row in rows)
