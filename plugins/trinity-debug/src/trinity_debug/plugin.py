"""Brings ``trinity debug`` and ``trinity perf`` to the command line."""

from __future__ import annotations

from trinity.extend.component import ComponentSpec
from trinity.extend.hookspecs import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_commands() -> dict[str, ComponentSpec]:
    """Return the commands that look into a task, and into the time of a run."""
    return {
        "debug": ComponentSpec(
            "trinity_debug.debug_command:debug", "Run one task, and print each prompt and reply."
        ),
        "perf": ComponentSpec(
            "trinity_debug.perf_command:perf", "Show how a run spends the time of its steps."
        ),
    }
