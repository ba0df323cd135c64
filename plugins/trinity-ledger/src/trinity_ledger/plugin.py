"""Name the storage to Trinity."""

from __future__ import annotations

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_storages() -> dict[str, ComponentSpec]:
    """Return the tables of a database."""
    return {
        "sql": ComponentSpec(
            "trinity_ledger.storage:SqlStorage",
            summary="a ledger in SQLite or PostgreSQL; standalone runs share it",
            checks="trinity_ledger.checks:ledger_problems",
            provides=frozenset(
                {
                    "state",
                    "put_back",
                    "drop_older",
                    "in_order",
                    "ledger",
                    "groups",
                    "length",
                    "standalone",
                    "report",
                    "seal",
                }
            ),
        ),
    }
