"""Brings ``trinity view`` to the command line."""

from trinity.extend.hookspecs import hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_commands() -> dict[str, str]:
    """Return the command that opens runs in a browser."""
    return {"view": "trinity_studio.view_command:view"}
