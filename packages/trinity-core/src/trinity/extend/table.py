"""Find one component by what the user wrote: nearer hides farther, and a clash is an error."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from trinity.errors import ConflictError, UnknownComponentError, unknown_name
from trinity.extend.component import (
    Component,
    ComponentSpec,
    Origin,
    look_in_working_directory,
    split_target,
)
from trinity.extend.kinds import KINDS
from trinity.extend.known import distribution_of_component, how_to_get, stand_in_of
from trinity.extend.requirements import canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.extend.record import PluginRecord


class ComponentTable:
    """The components of one moment, and the rules of who is meant by a name."""

    def __init__(
        self,
        components: Sequence[Component],
        *,
        records: Sequence[PluginRecord],
        prefer: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self.components = components
        self.records = records
        self.prefer = prefer
        self.say = say

    def find(self, kind: str, name: str) -> Component:
        """Return the component that ``name`` means.

        Args:
            kind: one of ``KINDS``.
            name: a name, an alias, ``distribution/name``, ``module:Class`` or ``module.Class``. An
                alias that is such a path stands in where nobody has the module.

        Raises:
            UnknownComponentError: nothing has that name.
            ConflictError: several have it, and nothing says which is meant.
        """
        owner, _, plain = name.rpartition("/")
        named = self._named(kind, plain, owner)
        is_path = not owner and ("." in name or ":" in name)
        if named and not (is_path and _has_module(name)):
            return self._chosen(kind, plain, named)
        if is_path:
            return self._dotted(kind, name)
        raise UnknownComponentError(self._unknown(kind, name, plain))

    def names(self, kind: str) -> list[str]:
        """Return all names and aliases of a kind, sorted; not those that are paths."""
        own = [component for component in self.components if component.kind == kind]
        return sorted({n for c in own for n in (c.name, *c.spec.aliases) if "." not in n})

    def _named(self, kind: str, name: str, owner: str) -> list[Component]:
        """Return who has the name, or failing that the alias; one entry for one class."""
        own = [c for c in self.components if c.kind == kind and _is_of(c.origin, owner)]
        named = [c for c in own if c.name == name] or [c for c in own if name in c.spec.aliases]
        return list({(c.origin.distribution, c.spec.target): c for c in named}.values())

    def _chosen(self, kind: str, name: str, named: list[Component]) -> Component:
        held = [component for component in named if component.origin.distribution is None]
        installed = [component for component in named if component.origin.distribution is not None]
        if held:
            self._refuse_several(kind, name, held)
            if installed:
                others = " and ".join(sorted({str(c.origin) for c in installed}))
                self.say(f"{kind} {name!r} is {held[0].origin}; it shadows that of {others}")
            return held[0]
        if len(installed) > 1:
            installed = self._preferred(kind, name, installed) or installed
        self._refuse_several(kind, name, installed)
        return installed[0]

    def _preferred(self, kind: str, name: str, named: list[Component]) -> list[Component]:
        preferred = self.prefer.get(f"{kind}/{name}") or self.prefer.get(name)
        return [c for c in named if preferred and _is_of(c.origin, preferred)]

    def _refuse_several(self, kind: str, name: str, named: list[Component]) -> None:
        if len(named) == 1:
            return
        origins = sorted(named, key=lambda component: str(component.origin))
        first, second = origins[0].origin, origins[1].origin
        if first.distribution is None or second.distribution is None:
            raise ConflictError(
                f"{kind} {name!r} is registered twice: by {first} and by {second}. "
                "Give one of them another name, or register with force=True."
            )
        raise ConflictError(
            f"{kind} {name!r} is registered twice: by {first} (plugin {first.plugin}) and by "
            f"{second} (plugin {second.plugin}). Write {first.distribution}/{name} or "
            f"{second.distribution}/{name}, set plugins.prefer: {{{name}: {first.distribution}}}, "
            f"or run with -P no:{second.plugin}."
        )

    def _dotted(self, kind: str, name: str) -> Component:
        try:
            module, qualname = split_target(name)
        except ImportError as error:
            raise UnknownComponentError(f"{kind}: {error}") from error
        origin = Origin("", None, None, f"the dotted path {name}")
        for record in self.records:
            if record.module.partition(".")[0] == module.partition(".")[0] and record.is_usable:
                origin = record.origin
        return Component(kind, name, ComponentSpec(target=f"{module}:{qualname}"), origin)

    def _unknown(self, kind: str, name: str, plain: str) -> str:
        known = [*KINDS[kind].core_names, *self.names(kind)]
        message = unknown_name(kind, name, known, list_by=f"trinity plugins list --kind {kind}")
        provider = self._unusable_provider(kind, plain)
        if provider is not None:
            return (
                f"{message} It is provided by plugin {provider.label}, which is {provider.state}: "
                f"{provider.message}. Remedy: {provider.remedy}."
            )
        distribution = distribution_of_component(kind, plain)
        if distribution is not None:
            return f"{message} It is part of {distribution}. {how_to_get(distribution)}"
        instead = stand_in_of(f"{kind}/{plain}")
        if instead is not None:
            return f"{message} Trinity-RFT has it; here {instead}."
        unasked = [r for r in self.records if not r.is_usable and not r.components]
        if unasked:
            listed = ", ".join(f"{record.label} is {record.state}" for record in unasked)
            return f"{message} Plugins that did not load: {listed}."
        return message

    def _unusable_provider(self, kind: str, name: str) -> PluginRecord | None:
        """Return the broken, disabled or incompatible plugin that would give the component."""
        distribution = distribution_of_component(kind, name)
        for record in self.records:
            gives = any(c.kind == kind and c.name == name for c in record.components)
            is_known = distribution and canonical(record.distribution or "") == distribution
            if not record.is_usable and (gives or is_known):
                return record
        return None


def _has_module(path: str) -> bool:
    """Tell whether the module of a dotted path can be found; its packages are imported."""
    try:
        look_in_working_directory(path)
        return find_spec(split_target(path)[0]) is not None
    except (ImportError, ValueError):
        return False


def _is_of(origin: Origin, owner: str) -> bool:
    """Tell whether the owner written before the slash, if any, means this origin."""
    if not owner:
        return True
    return owner == origin.plugin or canonical(owner) == canonical(origin.distribution or "")
