"""How commands print rows and texts of models."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer

from trinity.common.secret_names import secrets_of
from trinity.common.secrets import MaskedStream, remember

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def masked_output() -> Iterator[None]:
    """Let what is printed inside the block, by whomever, leave without secrets."""
    remember(secrets_of(os.environ, env={}))
    streams = sys.stdout, sys.stderr
    hiding = [MaskedStream(stream) for stream in streams]
    sys.stdout, sys.stderr = hiding  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams
        for one in hiding:
            with suppress(OSError, ValueError):  # nobody reads it any more
                one.end()


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


# What moves the cursor of a terminal, or turns the order of letters around.
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
_TURNS = (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_HALVES = range(0xD800, 0xE000)  # of pairs, which no terminal can be sent alone
_CONTROL |= {code: f"\\u{code:04x}" for code in (*_TURNS, *_HALVES)}


def plain(text: str) -> str:
    r"""Return the text with control characters written out.

    >>> plain("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return text.replace("\r", "\n").translate(_CONTROL)


def indented(text: str) -> str:
    """Return the text, each line moved to the right."""
    return "\n".join(f"    {line}" for line in text.split("\n"))


def duration(seconds: float | None) -> str:
    """Return a time for a person.

    >>> duration(7.4), duration(200), duration(9000), duration(200000)
    ('7 s', '3 min', '2.5 h', '2.3 days')
    """
    seconds = seconds or 0.0
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86400 else f"{seconds / 86400:.1f} days"
