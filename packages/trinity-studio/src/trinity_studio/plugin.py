"""Brings ``trinity view`` and ``trinity studio`` to the command line."""

from __future__ import annotations

from trinity.extend.component import ComponentSpec
from trinity.extend.hookspecs import hookimpl

TRINITY_PLUGIN_API = 1
_REGISTRY = "trinity_studio.config_registry"
_SETTINGS = tuple(f"{part}_config_manager" for part in ("buffer", "explorer", "model", "trainer"))


@hookimpl
def trinity_commands() -> dict[str, ComponentSpec]:
    """Return the commands that open runs, and a configuration, in a browser."""
    return {
        "view": ComponentSpec("trinity_studio.view_command:view", "Open runs in a browser."),
        "studio": ComponentSpec(
            "trinity_studio.studio_command:studio", "Edit a configuration in a browser."
        ),
    }


@hookimpl
def trinity_published_modules() -> dict[str, str]:
    """Return the modules of the configuration page under their published paths."""
    names = ("config_registry", *_SETTINGS)
    return {
        "trinity.manager.config_manager": "trinity_studio.config_manager",
        **{f"trinity.manager.config_registry.{name}": f"{_REGISTRY}.{name}" for name in names},
    }


@hookimpl
def trinity_config_generators() -> dict[str, str]:
    """Return the modules of our own settings; the page says itself where they are drawn."""
    return {f"{_REGISTRY}.{name}": "" for name in _SETTINGS}
