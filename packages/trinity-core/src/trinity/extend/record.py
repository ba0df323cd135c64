"""What is known about one plugin: where it comes from, its state, what it gives."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from trinity.extend.component import Component, Origin
from trinity.extend.requirements import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

PluginState = Literal["ok", "disabled", "incompatible", "broken", "shadowed", "unloaded"]


@dataclass(frozen=True, kw_only=True)
class PluginRecord:
    """One plugin, as ``trinity plugins list`` shows it.

    State ``unloaded``: known from metadata, its module not imported.
    """

    name: str  # the entry point's name, or the file's
    distribution: str | None  # None: from a plugin folder
    version: str | None
    module: str  # import name of the plugin module
    source: str = "wheel"  # wheel, editable, git, plugin-dir
    path: str | None = None  # None: a wheel; else the folder or file that it is read from
    commit: str | None = None  # None: neither installed from git, nor in a clone
    api: str | None = None  # None: not known, or not declared
    state: PluginState = "unloaded"
    message: str = ""  # why the state is not ok
    remedy: str = ""
    components: tuple[Component, ...] = ()
    shadowed: tuple[str, ...] = ()  # "kind/name by whom"
    trace: str = ""  # the traceback that broke it

    def is_called(self, name: str) -> bool:
        """Return whether a person means this plugin; case, ``-`` and ``_`` do not matter."""
        names = {canonical(self.name), canonical(self.distribution or self.name)}
        return canonical(name) in names

    @property
    def origin(self) -> Origin:
        """Return whose its components are, as messages say it."""
        source = self.source if self.distribution else f"plugin-dir {self.path}"
        return Origin(self.name, self.distribution, self.version, source)

    @property
    def key(self) -> str:
        """Return what tells it from every other plugin."""
        return self.origin.key

    @property
    def label(self) -> str:
        """Return it as messages name it, such as ``foo (foo-trinity 2.0)``."""
        return f"{self.name} ({self.origin})"

    @property
    def is_usable(self) -> bool:
        """Tell whether its components can be found by name."""
        return self.state in {"ok", "shadowed"}

    def provides(self) -> str:
        """Return how many components of each kind it gives, such as ``workflow x2``."""
        counts = Counter(component.kind for component in self.components)
        return ", ".join(f"{kind} x{count}" for kind, count in counts.items())

    def failure_line(self) -> str:
        """Return the one line that says what is wrong with it and what to do."""
        what = f"plugin {self.label}, entry point {self.module},"
        if self.distribution is None:
            what = f"{self.path} of the plugin folder"
        return f"{what} is {self.state}: {self.message}. Remedy: {self.remedy}."

    def header(self) -> str:
        """Return where it comes from, as the header of a run says it once for all alike."""
        if self.distribution is None:
            return str(self.origin)
        return f"{self.version}{f', {self.source}' if self.source != 'wheel' else ''}"

    def with_shadows(self, held: Mapping[tuple[str, str], str]) -> PluginRecord:
        """Return it with those of its components that the user's own classes hide."""
        hidden = [c for c in self.components if (c.kind, c.name) in held]
        if self.distribution is None or self.state != "ok" or not hidden:
            return self
        shadowed = tuple(f"{c.kind}/{c.name} by {held[c.kind, c.name]}" for c in hidden)
        return replace(
            self,
            state="shadowed" if len(hidden) == len(self.components) else "ok",
            shadowed=shadowed,
            message="shadowed: " + ", ".join(shadowed),
        )
