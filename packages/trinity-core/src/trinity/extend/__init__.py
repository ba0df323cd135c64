"""How to plug in: hooks, component specs, registries and the plugin manager.

A plugin is a distribution with an entry point in the group ``trinity.plugins`` and a thin module::

    from trinity.extend import hookimpl

    TRINITY_PLUGIN_API = 1


    @hookimpl
    def trinity_workflows():
        return {"my_workflow": "my_package.workflow:MyWorkflow"}
"""

from trinity.extend.component import AssetSpec, Component, ComponentSpec, EnvironmentSpec, Origin
from trinity.extend.environments import environment_python
from trinity.extend.hookspecs import PLUGIN_API, hookimpl, hookspec
from trinity.extend.kind import Ability, Kind, Setting
from trinity.extend.kinds import KINDS
from trinity.extend.manager import PluginManager, get_manager, set_manager
from trinity.extend.published import published_class
from trinity.extend.record import PluginRecord
from trinity.extend.registry import Registry

__all__ = [
    "KINDS",
    "PLUGIN_API",
    "Ability",
    "AssetSpec",
    "Component",
    "ComponentSpec",
    "EnvironmentSpec",
    "Kind",
    "Origin",
    "PluginManager",
    "PluginRecord",
    "Registry",
    "Setting",
    "environment_python",
    "get_manager",
    "hookimpl",
    "hookspec",
    "published_class",
    "set_manager",
]
