"""All plugins of this process: found, imported one by one, asked by name.

metadata ---found_plugins---> records (unloaded) ---first question---> records (ok, broken, ...)
                                                                           |
find(kind, name) <--- ComponentTable <--- components of plugins + classes held in hand
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trinity.errors import PluginError, UnknownComponentError, unknown_name
from trinity.extend.component import Component, ComponentSpec, Origin, target_of
from trinity.extend.discovery import Admission, FoundPlugin, found_plugins
from trinity.extend.held import HELD, HeldClass
from trinity.extend.hook_call import HookCaller
from trinity.extend.identity import set_digest, source_hash
from trinity.extend.kinds import KINDS
from trinity.extend.loading import DATA_HOOKS, load_plugin, new_hook_caller, refuse_other_shapes
from trinity.extend.ownership import refuse_other_owner
from trinity.extend.plugin_dir import DEFAULT_FOLDER, folder_plugins
from trinity.extend.record import PluginRecord
from trinity.extend.requirements import missing_requirements
from trinity.extend.table import ComponentTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from importlib.metadata import EntryPoint
    from pathlib import Path

__all__ = ["PluginManager", "PluginRecord", "get_manager", "owner_label", "set_manager"]


@dataclass(kw_only=True)
class PluginManager:
    """The plugins of one process. Build it with ``discover``.

    Life: found (metadata only) -> loaded (at the first question about components), for good.
    """

    found: list[FoundPlugin]
    admission: Admission = field(default_factory=Admission)
    prefer: Mapping[str, str] = field(default_factory=dict)
    is_strict: bool = False

    def __post_init__(self) -> None:
        self._hooks = new_hook_caller()
        self._loaded: list[PluginRecord] | None = None  # None: no plugin module imported yet
        self._said: set[str] = set()
        self._newest: tuple[tuple[int, int], ComponentTable] | None = None
        self._lock = threading.RLock()  # two threads may ask first; one imports

    @classmethod
    def discover(  # noqa: PLR0913 -- the switches of plugins.*, one argument each
        cls,
        *,
        env: Mapping[str, str] | None = None,
        plugin_dirs: Iterable[str | Path] | None = None,
        disabled: Iterable[str] = (),
        autoload: bool = True,
        allow: Iterable[str] = (),
        prefer: Mapping[str, str] | None = None,
        entry_points: Iterable[EntryPoint] | None = None,
    ) -> PluginManager:
        """Return a manager of what is installed and of the plugin folders; imports no plugin.

        Args:
            env: the environment to read; None: the process's.
            plugin_dirs: plugin folders beside those of TRINITY_PLUGIN_DIRS.
            disabled: plugins or distributions that are not to be imported.
            autoload: False: import only the core's own, those in ``allow`` and the folders'.
            allow: plugins or distributions to import where ``autoload`` is off.
            prefer: ``kind/name`` or ``name`` -> whose component is meant where several give it.
            entry_points: what to take for installed; None: ask the installation.

        Raises:
            PluginError: a plugin folder does not exist, or another distribution has files here.
        """
        refuse_other_owner()
        env = os.environ if env is None else env  # noqa: TID251 -- style rule 47
        folders = [*(plugin_dirs or ()), *_folders_in(env)]
        found = found_plugins(entry_points)
        for folder in folders or ([DEFAULT_FOLDER] if DEFAULT_FOLDER.is_dir() else []):
            found += [plugin for plugin in folder_plugins(folder) if plugin not in found]
        return cls(
            found=found,
            admission=Admission(autoload=autoload, allow=tuple(allow), disabled=tuple(disabled)),
            prefer=prefer or {},
            is_strict=env.get("TRINITY_STRICT_PLUGINS") == "1",
        )

    def narrowed(
        self,
        *,
        plugin_dirs: Iterable[str | Path] = (),
        disabled: Iterable[str] = (),
        autoload: bool = True,
        allow: Iterable[str] = (),
        prefer: Mapping[str, str] | None = None,
    ) -> PluginManager:
        """Return a manager with a run's own switches added to these; itself if there are none."""
        wanted = Admission(
            autoload=autoload and self.admission.autoload,
            allow=(*self.admission.allow, *allow),
            disabled=(*self.admission.disabled, *disabled),
        )
        found = list(self.found)
        for folder in plugin_dirs:
            found = [p for p in found if not p.record.module.startswith("trinity.plugins.")]
            known = {plugin.record.key for plugin in found}
            found += [p for p in folder_plugins(folder) if p.record.key not in known]
        preferred = {**self.prefer, **(prefer or {})}
        if (found, wanted, preferred) == (self.found, self.admission, self.prefer):
            return self
        manager = replace(self, found=found, admission=wanted, prefer=preferred)
        manager._said = self._said
        return manager

    @property
    def records(self) -> list[PluginRecord]:
        """Return what is known of each plugin; imports the plugin modules."""
        components = self.components()
        users = [c for c in components if c.origin.distribution is None]
        hiding = {(component.kind, component.name): str(component.origin) for component in users}
        return [
            _with_components(record, components).with_shadows(hiding) for record in self._records()
        ]

    def unloaded_records(self) -> list[PluginRecord]:
        """Return what metadata alone says of each plugin; imports nothing of theirs."""
        return [self.admission.decide(plugin) for plugin in self.found]

    def names(self, kind: str) -> list[str]:
        """Return the names and aliases of one kind, sorted."""
        return self._table().names(kind)

    def components(self, kind: str | None = None) -> list[Component]:
        """Return the components of the plugins in use and the classes held in hand."""
        records = self._records()
        given = [c for r in records if r.is_usable for c in r.components]
        held = [c for c in map(self._held_component, HELD.all()) if c is not None]
        listed = {(c.kind, c.name, c.spec.target, c.origin) for c in given}
        both = given + [c for c in held if (c.kind, c.name, c.spec.target, c.origin) not in listed]
        return [component for component in both if kind in {None, component.kind}]

    def find(self, kind: str, name: str | type) -> Component:
        """Return the component that a name, a dotted path or a class in hand means.

        Raises:
            UnknownComponentError: nothing has that name.
            ConflictError: several have it, and nothing says which is meant.
            PluginError: a plugin folder cannot be loaded.
        """
        if kind not in KINDS:
            raise UnknownComponentError(unknown_name("kind of component", kind, KINDS))
        if isinstance(name, str):
            return self._table().find(kind, name)
        target = target_of(name)
        origin = self._origin_of(self.owner_of(name.__module__), target)
        origin = origin or _users(target)
        return Component(kind, name.__qualname__, ComponentSpec(target), origin, held=name)

    def load(self, kind: str, name: str | type) -> type:
        """Return the class that ``find`` finds, imported.

        Raises:
            PluginError: it cannot be imported; the message says whose it is.
        """
        return self.find(kind, name).load()

    def call(self, hook: str, **arguments: Any) -> list[tuple[PluginRecord, Any]]:
        """Return what each plugin's implementation of a hook returns, one plugin after the other.

        One that raises is named on stderr and left out (with TRINITY_STRICT_PLUGINS=1: raises).
        """
        return self.hook(hook)(**arguments)

    def hook(self, name: str) -> HookCaller:
        """Return what calls a hook as :meth:`call` does, of the plugins that are in use now."""
        usable = [record for record in self._records() if record.is_usable]
        implementations = getattr(self._hooks.hook, name).get_hookimpls()
        plugins = [
            (r, [one for one in implementations if one.plugin_name == r.key]) for r in usable
        ]
        check = refuse_other_shapes if name in DATA_HOOKS else None
        return HookCaller(name, plugins, tell=self._say_or_raise, check=check)

    def missing_requirements(self, requirements: Sequence[str]) -> list[str]:
        """Return one line for each of ``plugins.require`` that does not hold, with the pip line."""
        return missing_requirements(requirements, records=self._records())

    def digest(self) -> str:
        """Return 16 hex digits that are equal where the plugins in use are equal."""
        return set_digest(self._in_use())

    def describe(self) -> list[dict[str, Any]]:
        """Return the plugins in use as a run directory and a checkpoint hold them."""
        return [
            {
                "plugin": plugin.record.name,
                "distribution": plugin.record.distribution,
                "version": plugin.record.version,
                "module": plugin.record.module,
                "source": plugin.record.source,
                "path": plugin.record.path,
                "commit": plugin.record.commit,
                "source_hash": source_hash(plugin),
            }
            for plugin in self._in_use()
        ]

    def header(self) -> str:
        """Return the line of a run's header: the plugins in use, then those that are not."""
        alike: dict[str, list[str]] = {}  # where they come from, in words -> names
        for record in self._records():
            if record.is_usable:
                alike.setdefault(record.header(), []).append(record.name)
        parts = [f"{', '.join(names)} ({header})" for header, names in alike.items()]
        parts += [f"{r.name} is {r.state}" for r in self._records() if not r.is_usable]
        return "plugins: " + "; ".join(parts)

    def owner_of(self, module: str) -> str | None:
        """Return the key of the distribution's plugin whose package holds the module, if any."""
        package = module.partition(".")[0]
        for plugin in self.found:
            record = plugin.record
            if record.distribution and record.module.partition(".")[0] == package:
                return record.key
        return None

    def _records(self) -> list[PluginRecord]:
        with self._lock:
            if self._loaded is None:
                self._loaded = []  # a plugin that asks while it is imported sees those before it
                try:
                    for plugin in self.found:
                        self._loaded.append(self._load(self.admission.decide(plugin)))
                except PluginError:
                    self._hooks, self._loaded, self._newest = new_hook_caller(), None, None
                    raise
            return self._loaded

    def _load(self, record: PluginRecord) -> PluginRecord:
        if record.state == "unloaded":
            record = load_plugin(record, self._hooks)
        if record.state in {"broken", "incompatible"}:
            line = record.failure_line()
            if record.distribution is None:
                raise PluginError(line)
            self._say_or_raise(line)
        return record

    def _in_use(self) -> list[FoundPlugin]:
        usable = {record.key for record in self._records() if record.is_usable}
        return [plugin for plugin in self.found if plugin.record.key in usable]

    def _table(self) -> ComponentTable:
        """Return the table of this moment; every run of a workflow asks for it."""
        records = self._records()
        moment = (len(records), HELD.num_changes)
        if self._newest is None or self._newest[0] != moment:
            table = ComponentTable(
                self.components(), records=records, prefer=self.prefer, say=self._say_once
            )
            self._newest = (moment, table)
        return self._newest[1]

    def _held_component(self, entry: HeldClass) -> Component | None:
        origin = self._origin_of(entry.owner, entry.target)
        if origin is None:
            return None
        return Component(
            entry.kind, entry.name, ComponentSpec(entry.target), origin, held=entry.value
        )

    def _origin_of(self, owner: str | None, target: str) -> Origin | None:
        """Return whose a class is; None: a plugin's that is not in use."""
        if owner is None:
            return _users(target)
        owners = [r for r in self._records() if r.key == owner and r.is_usable]
        return owners[0].origin if owners else None

    def _say_or_raise(self, line: str) -> None:
        if self.is_strict:
            raise PluginError(line)
        self._say_once(line)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            sys.stderr.write(f"trinity: {line}\n")


def get_manager() -> PluginManager:
    """Return the process's manager, discovered on first use."""
    if not _current:
        _current.append(PluginManager.discover())
    return _current[0]


def set_manager(manager: PluginManager | None) -> PluginManager | None:
    """Return the manager so far; ``manager`` replaces it, None: discover anew on next use."""
    before = _current[0] if _current else None
    _current[:] = [] if manager is None else [manager]
    return before


def owner_label(part: object) -> str:
    """Return a part's class and whose it is, as ``Clip (foo-trinity 2.0)``."""
    cls = part if isinstance(part, type) else type(part)
    manager = get_manager()
    key = manager.owner_of(cls.__module__)
    owners = [plugin.record for plugin in manager.found if plugin.record.key == key]
    origin = owners[0].origin if owners else _users(target_of(cls))
    return f"{cls.__name__} ({origin})"


_current: list[PluginManager] = []  # holds one manager, or none before the first use


def _folders_in(env: Mapping[str, str]) -> list[str]:
    return [folder for folder in env.get("TRINITY_PLUGIN_DIRS", "").split(os.pathsep) if folder]


def _users(target: str) -> Origin:
    return Origin("", None, None, f"your class {target}")


def _with_components(record: PluginRecord, components: Iterable[Component]) -> PluginRecord:
    """Return the record with what it registered by decorators too."""
    if not record.is_usable:
        return record
    return replace(record, components=tuple(c for c in components if c.origin == record.origin))
