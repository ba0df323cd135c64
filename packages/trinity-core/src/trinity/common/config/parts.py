"""The components that a configuration names, as far as they can be loaded."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from trinity.errors import PluginError, TrinityError
from trinity.extend.failure import described_failure
from trinity.extend.known import distribution_of_component

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.extend import Component, PluginManager


class NamedParts:
    """Looks components up for `resolve` and `check`; what cannot be found is None here.

    `check` reports it, with the manager's own message.
    """

    def __init__(self, manager: PluginManager | None = None) -> None:
        if manager is None:
            from trinity.extend import get_manager

            manager = get_manager()
        self.manager = manager

    def find(self, kind: str, name: str | None) -> Component | None:
        """Return the component of a name, or None."""
        if not name:
            return None
        try:
            return self.manager.find(kind, name)
        except TrinityError:
            return None

    def load(self, kind: str, name: str | None) -> type | None:
        """Return the class of a name, or None."""
        component = self.find(kind, name)
        if component is None:
            return None
        try:
            return component.load()
        except TrinityError:
            return None

    def spreads(self, engine: str | None) -> bool:
        """Return whether an engine shares its tensors among GPUs, or processes of a CPU."""
        found = self.find("rollout_engine", engine)
        return found is not None and "tensor_parallel" in found.spec.provides

    def default_args(self, kind: str, name: str | None) -> dict[str, Any]:
        """Return the arguments that a component takes by itself."""
        loaded = self.load(kind, name)
        if loaded is None:
            return {}
        with named_failure(f"default_args() of {kind} {name}"):
            return default_args_of(loaded)

    def not_installed(self, kind: str, name: str | None) -> str | None:
        """Return the distribution of ours that has the component, where nobody here has it."""
        if not name or self.find(kind, name) is not None:
            return None
        return distribution_of_component(kind, name)

    def default_engine(self, *, num_gpus: int) -> str | None:
        """Return the engine that is the default here: one for GPUs only with all that it needs."""
        wanted = ["gpu", "cpu"] if num_gpus else ["cpu"]
        for place in wanted:
            for component in self.manager.components("rollout_engine"):
                if component.spec.default_for == place and self._is_whole(component):
                    return component.name
        return None

    def _is_whole(self, component: Component) -> bool:
        """Return whether all is there that its plugin needs beside Python packages of its own."""
        from trinity.extend.assets import assets_of, missing_part

        if component.spec.default_for == "cpu":
            return True
        for record in self.manager.records:
            if record.key == component.origin.key:
                assets = assets_of(record, self.manager)
                return not any(missing_part(asset, record=record) for asset in assets)
        return True


@contextmanager
def named_failure(what: str) -> Iterator[None]:
    """Let an error of a component's own code say whose it is, and where.

    Args:
        what: the call that is made inside, for the message.

    Raises:
        PluginError: the component's code raised something unexpected.
    """
    try:
        yield
    except TrinityError:
        raise
    except (Exception, SystemExit) as error:  # it would end the command as if all were well
        raise PluginError(f"{what} failed: {described_failure(error)}. Correct it.") from error


def default_args_of(component: type) -> dict[str, Any]:
    """Return ``default_args()`` of a class, else the defaults of its ``__init__``."""
    declared = getattr(component, "default_args", None)
    if callable(declared):
        return dict(declared())
    try:
        parameters = inspect.signature(component).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: p.default for p in parameters if p.default is not p.empty}
