"""What is in a data set: rows that train on nothing, rows twice, rows too long, labels, overlap."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from trinity.buffer.row_files import load_rows
from trinity.common.rows import NO_CELL, cell
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

NUM_SHOWN = 3  # rows that a finding names
_MOST_LABELS = 20  # more different answers are no labels
_ONE_SIDED = 0.9  # share of one label


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row, by its text."""

    origin: str
    prompt: str | None  # None: null, or there is no such column
    answer: str | None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something about a data set.

    Attributes:
        text: what, with numbers.
        rows: the first rows of it.
        is_problem: False: it is said alone.
    """

    text: str
    rows: Sequence[str] = field(default_factory=tuple)
    is_problem: bool = True


def read_rows(path: str, *, prompt_key: str, answer_key: str, split: str = "train") -> list[Row]:
    """Return the rows of a data set.

    Raises:
        DataError: it cannot be read.
        ConfigError: no row has a prompt.
    """
    table = load_rows(path, split=split, setting="FILE")
    rows = [
        Row(
            origin=str(table.origin(number)),
            prompt=_text(table[number], prompt_key),
            answer=_text(table[number], answer_key),
        )
        for number in range(len(table))
    ]
    if all(row.prompt is None for row in rows):
        keys = ", ".join(sorted(table[0]))
        raise ConfigError(
            f"no row of {path} has a prompt in column {prompt_key!r}. Its columns are {keys}; name "
            f"one with --prompt-key."
        )
    return rows


def findings_of(
    rows: Sequence[Row],
    *,
    held_out: Sequence[Row] = (),
    count: Callable[[str], int] | None = None,
    max_tokens: int = 0,
) -> list[Finding]:
    """Return what is worth knowing of the rows.

    Args:
        rows: to train on.
        held_out: to evaluate on.
        count: tokens of a text; None: nobody can count them.
        max_tokens: of a prompt; 0: there is no limit.
    """
    found = [
        _named(rows, "with a null prompt", lambda row: row.prompt is None),
        _named(
            rows,
            "with an empty prompt",
            lambda row: _is_blank(row.prompt),
        ),
        _named(rows, "with a null answer", lambda row: row.answer is None),
        _named(
            rows,
            "with an empty answer",
            lambda row: _is_blank(row.answer),
        ),
        *_twice(rows),
        *_overlap(rows, held_out),
        *_labels(rows),
        *(_tokens(rows, count, max_tokens) if count is not None else ()),
    ]
    return [one for one in found if one is not None]


def _text(row: Mapping[str, Any], key: str) -> str | None:
    value = cell(row, key)
    if value is NO_CELL or value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _named(rows: Iterable[Row], what: str, is_one: Callable[[Row], bool]) -> Finding | None:
    found = [row.origin for row in rows if is_one(row)]
    if not found:
        return None
    return Finding(text=f"{_count(len(found))} {what}", rows=found[:NUM_SHOWN])


def _twice(rows: Sequence[Row]) -> Iterable[Finding]:
    """Yield rows whose prompt came before, with the same answer or another."""
    first: dict[str, Row] = {}
    same, other = [], []
    for row in rows:
        if row.prompt is None:
            continue
        before = first.setdefault(plain_prompt(row.prompt), row)
        if before is not row:
            (same if before.answer == row.answer else other).append(row.origin)
    if same:
        text = f"{_count(len(same))} with the prompt and the answer of an earlier row"
        yield Finding(text=text, rows=same[:NUM_SHOWN])
    if other:
        text = f"{_count(len(other))} with the prompt of an earlier row and another answer"
        yield Finding(text=text, rows=other[:NUM_SHOWN])


def _overlap(rows: Sequence[Row], held_out: Sequence[Row]) -> Iterable[Finding]:
    known = {plain_prompt(row.prompt) for row in rows if row.prompt}
    both = [row.origin for row in held_out if row.prompt and plain_prompt(row.prompt) in known]
    if both:
        text = f"{len(both)} of {len(held_out)} evaluation rows are training rows too"
        yield Finding(text=text, rows=both[:NUM_SHOWN])
    elif held_out:
        text = f"none of {len(held_out)} evaluation rows is a training row"
        yield Finding(text=text, is_problem=False)


def _labels(rows: Sequence[Row]) -> Iterable[Finding]:
    labels = Counter(row.answer.strip() for row in rows if row.answer is not None)
    if not 1 <= len(labels) <= min(_MOST_LABELS, len(rows) // 2):
        return
    shares = [(label, number / labels.total()) for label, number in labels.most_common()]
    shown = ", ".join(f"{label[:20]!r} {share:.0%}" for label, share in shares[:5])
    is_one_sided = shares[0][1] >= _ONE_SIDED
    text = f"{len(labels)} different answer{'s'[: len(labels) != 1]}: {shown}"
    if is_one_sided:
        text += f". A model that always says {shares[0][0][:20]!r} is right in {shares[0][1]:.0%}"
    yield Finding(text=text, is_problem=is_one_sided)


def _tokens(rows: Sequence[Row], count: Callable[[str], int], max_tokens: int) -> Iterable[Finding]:
    counts = [(count(row.prompt), row.origin) for row in rows if row.prompt is not None]
    numbers = sorted(number for number, _ in counts)
    cuts = quantiles(numbers, n=100, method="inclusive") if len(numbers) > 1 else numbers * 99
    text = (
        f"tokens of a prompt: median {cuts[49]:.0f}, 95 % up to {cuts[94]:.0f}, most {numbers[-1]}"
    )
    yield Finding(text=text, is_problem=False)
    long = [origin for number, origin in counts if max_tokens and number > max_tokens]
    if long:
        text = f"{_count(len(long))} with more than {max_tokens} tokens"
        yield Finding(text=text, rows=long[:NUM_SHOWN])


def _is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def plain_prompt(text: str) -> str:
    """Return a text without what does not change a question: case, spaces."""
    return re.sub(r"\s+", " ", text).strip().casefold()


def _count(number: int) -> str:
    return f"{number} row{'s'[: number != 1]}"
