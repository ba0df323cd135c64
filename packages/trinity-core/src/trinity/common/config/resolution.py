"""The workbench of `resolve`: sets values and remembers where each came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config.base import StrictModel
from trinity.common.config.paths import leaves, value_at

if TYPE_CHECKING:
    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.parts import NamedParts

__all__ = ["Resolution"]


class Resolution:
    """A copy of a configuration that is being filled in.

    Values that the user gave stay known as such (pydantic's set of given fields), so that a
    resolved configuration can be changed and resolved again.
    """

    def __init__(self, config: Config, *, machine: Machine, parts: NamedParts) -> None:
        self.config = config.copied()
        self.machine = machine
        self.parts = parts
        self.schema_type: tuple[str, str] = ("experience", "default")  # what is trained on, origin
        self._origins: dict[str, str] = {}

    def asked(self, path: str) -> bool:
        """Return whether the user gave a value (None is none)."""
        parent, _, name = path.rpartition(".")
        section = value_at(self.config, parent) if parent else self.config
        if not isinstance(section, StrictModel) or name not in section.model_fields_set:
            return False
        return getattr(section, name) is not None

    def value(self, path: str) -> Any:
        """Return what stands at a path."""
        return value_at(self.config, path)

    def fill(self, path: str, value: Any, *, origin: str) -> None:
        """Set a value that follows from others; the user has not given it."""
        parent, _, name = path.rpartition(".")
        section = value_at(self.config, parent) if parent else self.config
        given = name in section.model_fields_set
        setattr(section, name, value)
        if not given:
            section.model_fields_set.discard(name)
        self._origins[path] = origin

    def default(self, path: str, value: Any, *, origin: str) -> None:
        """Set a value unless the user gave one."""
        if not self.asked(path):
            self.fill(path, value, origin=origin)

    def note(self, text: str) -> None:
        """Keep a line for the run's header."""
        if text not in self.config.notes:
            self.config.notes.append(text)

    def from_part(self, path: str, origin: str) -> None:
        """Remember where one value inside a free dict came from."""
        self._origins[path] = origin

    def finished(self) -> Config:
        """Return the configuration with the origin of every value."""
        origins = {path: self._origin(path) for path, _ in leaves(self.config)}
        self.config.origins.clear()
        self.config.origins.update(origins)
        return self.config

    def _origin(self, path: str) -> str:
        for known in _upwards(path):
            if _is_section(self.value(known)):
                break
            if known in self._origins:
                return self._origins[known]
            where = self.config.source.where(known)
            if where or self.asked(known):
                return where or "Python"
        return "default"


def _upwards(path: str) -> list[str]:
    """Return a path and those of what holds it, the nearest first."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts), 0, -1)]


def _is_section(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, StrictModel) for item in value)
    return isinstance(value, StrictModel)
