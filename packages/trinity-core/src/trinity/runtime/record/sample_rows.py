"""Samples as rows for other programs: names that a data set has, and plain values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.runtime.record.run_text import RunText
    from trinity.runtime.record.sample_format import Place, Sample


def steps_of(places: list[Place], *, step: int | None) -> list[Place]:
    """Return the places that are meant; None: all."""
    return [place for place in places if step is None or place.head.step == step]


def samples_of(places: list[Place], *, task: str) -> Iterator[list[Sample]]:
    """Give the samples of each step that has some, those of one task where it is named.

    Args:
        places: of the steps.
        task: ``batch/task``, or with further parts of the id; empty: all.

    Raises:
        DataError: a block is damaged.
    """
    for place in places:
        try:
            samples = _of_place(place, task)
        except DataError as error:
            raise DataError(
                f"{place.path}: {error} Put the file back from a copy; its other steps can be read."
            ) from error
        if samples:
            yield samples


def _of_place(place: Place, task: str) -> list[Sample]:
    from trinity.runtime.record.sample_format import read_rows, read_step

    if task and not any(_is_of(row["eid"], task) for row in read_rows(place)):
        return []
    return [one for one in read_step(place) if not task or _is_of(one.eid, task)]


def rows_of(samples: list[Sample], *, text: RunText | None) -> list[dict[str, Any]]:
    """Return the samples as rows of plain values (Any: as :func:`schema` says)."""
    return [_row(sample, text) for sample in samples]


def schema() -> Any:  # Any: pyarrow's
    """Return the types of a row's columns."""
    import pyarrow as pa

    whole, number, text = pa.int64(), pa.float64(), pa.string()
    return pa.schema(
        {
            "step": whole,
            "eid": text,
            "task": text,
            "run": text,
            "reward": number,
            "advantage": number,
            "prompt": text,
            "response": text,
            "prompt_length": whole,
            "tokens": pa.list_(pa.int32()),
            "mask": pa.list_(pa.bool_()),
            "logprobs": pa.list_(pa.float32()),
            "advantages": pa.list_(pa.float32()),
            "temperature": number,
            "truncate_status": text,
            "metrics": text,
            "info": text,
        }
    )


def _is_of(eid: str, task: str) -> bool:
    return eid == task or eid.startswith(f"{task}/")


def _row(sample: Sample, text: RunText | None) -> dict[str, Any]:
    start = sample.prompt_length
    return {
        "step": sample.step,
        "eid": sample.eid,
        "task": sample.task,
        "run": sample.run,
        "reward": sample.reward,
        "advantage": sample.advantage,
        "prompt": text.decode(sample.tokens[:start]) if text else None,
        "response": text.decode(sample.tokens[start:]) if text else None,
        "prompt_length": start,
        "tokens": sample.tokens.tolist(),
        "mask": sample.mask.tolist(),
        "logprobs": _rounded(sample.logprobs),
        "advantages": _rounded(sample.advantages),
        "temperature": sample.temperature,
        "truncate_status": sample.truncate_status,
        "metrics": json.dumps(sample.metrics),
        "info": json.dumps(sample.info),
    }


def _rounded(values: Any) -> list[float] | None:  # Any: numpy's array of float32, or None
    """Return the numbers in as many digits as they have, null for one that is none."""
    if values is None:
        return None
    return [float(str(value)) if value == value else None for value in values]  # type: ignore[misc]  # noqa: PLR0124
