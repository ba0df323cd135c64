"""Refuse rows that a taskset can make no tasks of: a key is missing, or a prompt is null."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trinity.common.config import FormatConfig
from trinity.common.rows import NO_CELL, cell, no_such_key, no_text, no_value
from trinity.errors import DataError

if TYPE_CHECKING:
    from trinity.common.rows import Rows

_DEFAULTS = FormatConfig()
logger = logging.getLogger(__name__)


def check_rows(rows: Rows, keys: FormatConfig, *, name: str) -> None:
    """Refuse rows without a key or a prompt; warn of an empty prompt and of a null answer.

    Args:
        rows: of the taskset.
        keys: its section ``format``.
        name: of the taskset, for messages.

    Raises:
        DataError: a row cannot be a task.
    """
    for setting in ("prompt_key", "response_key"):
        _check_key(rows, getattr(keys, setting), setting=setting)
    null = _rows_with(rows, keys.prompt_key, None)
    if null:
        origin = str(rows.origin(null[0]))
        raise DataError(no_value(origin, key=keys.prompt_key, setting="prompt_key"))
    for setting, value in (("prompt_key", ""), ("response_key", None)):
        key = getattr(keys, setting)
        origins = [str(rows.origin(one)) for one in _rows_with(rows, key, value)]
        if origins:
            logger.warning("%s: %s", name, no_text(origins, key=key, setting=setting))


def _check_key(rows: Rows, key: str, *, setting: str) -> None:
    """Raise for the first row without the key, if any row has it or somebody asked for it.

    A workflow that reads its rows by itself needs no key, so the default key may be missing from
    all rows.
    """
    without = _rows_without(rows, key)
    is_asked_for = key != getattr(_DEFAULTS, setting)
    if without and (is_asked_for or len(without) < len(rows)):
        number = without[0]
        origin = str(rows.origin(number))
        raise DataError(no_such_key(origin, key=key, row=rows[number], setting=setting))


def _rows_without(rows: Rows, key: str) -> list[int]:
    if rows.columns is not None and (key in rows.columns or "." not in key):
        return [] if key in rows.columns else list(range(len(rows)))
    return [number for number in range(len(rows)) if cell(rows[number], key) is NO_CELL]


def _rows_with(rows: Rows, key: str, value: str | None) -> list[int]:
    """Return the rows that hold a value; of a table only nulls, read where it has any."""
    if rows.columns is not None and "." not in key:
        table: Any = rows.table  # Any: of ``datasets``
        if key not in rows.columns or value is not None or not table.data[key].null_count:
            return []
    return [number for number in range(len(rows)) if cell(rows[number], key) == value]
