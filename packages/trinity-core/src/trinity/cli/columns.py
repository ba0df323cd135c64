"""Print rows in columns: a table on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence


def echo_columns(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the rows under their headers; the last column may be as long as it likes."""
    if sys.stdout.isatty():
        _echo_table(headers, rows)
        return
    widths = [max(len(row[i]) for row in (headers, *rows)) for i in range(len(headers))]
    for row in (headers, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        typer.echo("  ".join(cells).rstrip())


def _echo_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header, no_wrap=header != headers[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console().print(table)


_STYLES = {
    "ok": "green",
    "PASS": "green",
    "disabled": "dim",
    "SKIP": "dim",
    "shadowed": "yellow",
    "incompatible": "red",
    "broken": "bold red",
    "FAIL": "bold red",
    "ERROR": "bold red",
}
