"""Import one plugin and ask its hooks; what goes wrong stays its own."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pluggy

from trinity.errors import did_you_mean
from trinity.extend.component import AssetSpec, Component, ComponentSpec, EnvironmentSpec
from trinity.extend.failure import described_failure
from trinity.extend.hookspecs import PLUGIN_API, PLUGIN_API_OLDEST, TrinityHooks
from trinity.extend.importing import importing_as
from trinity.extend.kinds import KINDS
from trinity.extend.plugin_dir import own_siblings
from trinity.extend.watch import HungPartError

if TYPE_CHECKING:
    from types import ModuleType

    from trinity.extend.record import PluginRecord

IMPORT_S = 60.0  # of a plugin's module, which names classes and imports none


def new_hook_caller() -> pluggy.PluginManager:
    """Return a pluggy manager that knows our hooks and no plugin."""
    hooks = pluggy.PluginManager("trinity")
    hooks.add_hookspecs(TrinityHooks)
    return hooks


def hook_names() -> list[str]:
    """Return the names of all hooks."""
    return [name for name in vars(TrinityHooks) if name.startswith("trinity_")]


def load_plugin(record: PluginRecord, hooks: pluggy.PluginManager) -> PluginRecord:
    """Return the record after importing the plugin and asking it for its components.

    The plugin stays registered with ``hooks`` only where its state is ``ok``.
    """
    try:
        with importing_as(record.key, limit_s=IMPORT_S), own_siblings():
            module = importlib.import_module(record.module)
        api = _declared_api(module)
    except (Exception, SystemExit, HungPartError) as error:  # noqa: BLE001 -- around one plugin
        return _broken(record, described_failure(error))
    record = replace(record, api=_shown_api(api))
    if api is not None and (api[0] > PLUGIN_API or api[1] < PLUGIN_API_OLDEST):
        return _incompatible(record)
    try:
        hooks.register(module, name=record.key)
        with importing_as(record.key):
            components = tuple(_components(record, hooks))
    except pluggy.PluginValidationError as error:
        hooks.unregister(name=record.key)
        lines = str(error).splitlines()  # the plugin and the hook, the signature, what is wrong
        return replace(_broken(record, f"{lines[0]}: {lines[-1]}"), remedy=_correct(record))
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the boundary of one plugin
        hooks.unregister(name=record.key)
        return _broken(record, described_failure(error))
    record = replace(record, state="ok", components=components)
    problem = _misspelt_hook(module, hooks) or _unmarked_hook(module, hooks)
    if problem:
        hooks.unregister(name=record.key)
        return replace(_broken(record, problem), remedy=_correct(record))
    return record


def _components(record: PluginRecord, hooks: pluggy.PluginManager) -> Iterator[Component]:
    for kind in KINDS.values():
        for implementation in getattr(hooks.hook, kind.hook).get_hookimpls():
            if implementation.plugin_name == record.key:
                given = implementation.function()
                yield from _as_components(record, kind.name, kind.hook, given)


def _as_components(
    record: PluginRecord, kind: str, hook: str, given: object
) -> Iterator[Component]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{hook} returned {given!r}, not a mapping of names to 'module:Class'")
    for name, value in given.items():
        spec = ComponentSpec(target=value) if isinstance(value, str) else value
        if not isinstance(name, str) or not isinstance(spec, ComponentSpec):
            raise TypeError(
                f"{hook} gives {name!r}: {value!r}, not a 'module:Class' or ComponentSpec"
            )
        yield Component(kind, name, spec, record.origin)


def _declared_api(module: ModuleType) -> tuple[int, int] | None:
    """Return the oldest and newest plugin API that the module speaks; None: it does not say."""
    declared = getattr(module, "TRINITY_PLUGIN_API", None)
    if declared is None:
        return None
    if isinstance(declared, int):
        return declared, declared
    if isinstance(declared, tuple) and len(declared) == 2:
        return int(declared[0]), int(declared[1])
    raise TypeError(f"TRINITY_PLUGIN_API is {declared!r}, neither a number nor (oldest, newest)")


def _shown_api(api: tuple[int, int] | None) -> str | None:
    if api is None:
        return None
    return str(api[0]) if api[0] == api[1] else f"{api[0]}-{api[1]}"


def _incompatible(record: PluginRecord) -> PluginRecord:
    core = str(PLUGIN_API)
    if PLUGIN_API_OLDEST != PLUGIN_API:
        core = f"{PLUGIN_API_OLDEST}-{PLUGIN_API}"
    oldest = int((record.api or "0").partition("-")[0])
    older = "trinity-core" if oldest > PLUGIN_API else record.distribution or record.name
    return replace(
        record,
        state="incompatible",
        message=f"needs plugin API {record.api}, this core speaks {core}",
        remedy=f"python -m pip install --upgrade {older}",
    )


def _misspelt_hook(module: ModuleType, hooks: pluggy.PluginManager) -> str:
    """Return what is wrong with a marked function that no hook has the name of."""
    for name in dir(module):
        options = hooks.parse_hookimpl_opts(module, name)
        if options is None:
            continue
        hook = options.get("specname") or name
        if hook not in hook_names():
            near = did_you_mean(hook, hook_names()).strip().removesuffix("?")
            return f"there is no hook {hook!r}" + (
                f" ({near[0].lower()}{near[1:]}?)" if near else ""
            )
    return ""


def _unmarked_hook(module: ModuleType, hooks: pluggy.PluginManager) -> str:
    """Return what is wrong with a function named like a hook that lacks ``@hookimpl``."""
    for name in hook_names():
        function = vars(module).get(name)
        if callable(function) and hooks.parse_hookimpl_opts(module, name) is None:
            return f"{name!r} lacks @hookimpl, so it would never be called"
    return ""


def _broken(record: PluginRecord, message: str) -> PluginRecord:
    remedy = _correct(record)
    if record.distribution and not record.path:  # from an index; else its author is at work
        remedy = f"python -m pip install --upgrade {record.distribution}, or {_switch(record)}"
    trace = traceback.format_exc()
    return replace(
        record,
        state="broken",
        message=message.rstrip("."),
        remedy=remedy,
        trace="" if trace.startswith("NoneType") else trace,
    )


def _correct(record: PluginRecord) -> str:
    return f"correct it, or {_switch(record)}"


def _switch(record: PluginRecord) -> str:
    if record.distribution is None:
        return "take it out of the folder"
    return f"leave it out with -P no:{record.name}"


_TABLES = {  # hooks that return a mapping of texts: what they map
    "trinity_commands": "names to 'module:attribute'",
    "trinity_conformance_checks": "names to 'module:attribute'",
    "trinity_published_modules": "published paths to names of modules",
    "trinity_config_generators": "names of modules to headings",
}


DATA_HOOKS = {"trinity_assets", *_TABLES}


def refuse_other_shapes(hook: str, given: object) -> None:
    """Raise where a hook that is asked for data returns something else."""
    if hook == "trinity_assets":
        if not isinstance(given, list | tuple) or not all(
            isinstance(need, AssetSpec | EnvironmentSpec) for need in given
        ):
            raise TypeError(f"it returned {given!r}, not a list of AssetSpec and EnvironmentSpec")
    elif hook in _TABLES:
        texts = [*given, *given.values()] if isinstance(given, Mapping) else [None]
        if hook == "trinity_commands":
            texts = [one.target if isinstance(one, ComponentSpec) else one for one in texts]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"it returned {given!r}, not a mapping of {_TABLES[hook]}")
