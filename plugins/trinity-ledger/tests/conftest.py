"""Where a ledger of a test lies: a file, and a database of a server where there is one."""

from __future__ import annotations

import os
import uuid

import pytest

POSTGRES = os.environ.get("TRINITY_TEST_POSTGRES", "")  # a server's URL; nox -s postgres sets it


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.skipif(
    not POSTGRES, reason="nox -s postgres starts the server"))])  # fmt: skip
def path(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/ledger.db"
        return
    import psycopg

    name = f"ledger_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(POSTGRES, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield (
            POSTGRES.replace("postgresql://", "postgresql+psycopg2://").rpartition("/")[0]
            + f"/{name}"
        )
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
