"""Options that ``trinity view`` and ``trinity studio`` have both."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Databases"]

Databases = Annotated[
    bool,
    typer.Option(
        "--databases",
        help="Query the database servers of runs as you (PGPASSWORD, ~/.pgpass).",
    ),
]
