"""Brings ``trinity tinker`` to the command line."""

from __future__ import annotations

from trinity.extend.component import ComponentSpec
from trinity.extend.hookspecs import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_commands() -> dict[str, ComponentSpec]:
    """Return the command that serves the Tinker protocol."""
    return {
        "tinker": ComponentSpec(
            "trinity_tinker.tinker_command:app",
            "Serve models of this machine to clients of the Tinker API.",
        )
    }
