"""Options that ``trinity view`` and ``trinity studio`` have both."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Databases"]

Databases = Annotated[
    bool,
    typer.Option(
        "--databases",
        help="Let the pages ask servers that run directories name, as you (PGPASSWORD, ~/.pgpass).",
    ),
]
