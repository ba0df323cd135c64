"""The classes that this process holds in hand: registered by a decorator, not named by a hook."""

from __future__ import annotations

from dataclasses import dataclass

from trinity.errors import ConflictError


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldClass:
    """A class registered by a decorator."""

    kind: str
    name: str
    value: type
    owner: str | None  # a plugin's key; None: the user's own

    @property
    def target(self) -> str:
        """Return ``"module:qualified name"``."""
        return f"{self.value.__module__}:{self.value.__qualname__}"


class HeldClasses:
    """All of them, by kind, name and owner; they outlive the plugin manager."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str | None], HeldClass] = {}
        self.num_changes = 0

    def add(self, entry: HeldClass, *, force: bool = False) -> None:
        """Hold the class; the same module and qualified name again replaces it.

        Raises:
            ConflictError: the same owner holds another class under this name.
        """
        key = (entry.kind, entry.name, entry.owner)
        known = self._entries.get(key)
        if known is not None and known.target != entry.target and not force:
            raise ConflictError(
                f"{entry.kind} {entry.name!r} is registered twice: as {known.target} and as "
                f"{entry.target}. Give one of them another name, or register with force=True."
            )
        self._entries[key] = entry
        self.num_changes += 1

    def all(self) -> list[HeldClass]:
        """Return the classes, sorted by kind, name and owner."""
        return sorted(self._entries.values(), key=lambda e: (e.kind, e.name, e.owner or ""))

    def copy(self) -> dict[tuple[str, str, str | None], HeldClass]:
        """Return what is held now, for ``restore``."""
        return dict(self._entries)

    def restore(self, entries: dict[tuple[str, str, str | None], HeldClass]) -> None:
        """Hold exactly what ``copy`` returned (tests)."""
        self._entries = dict(entries)
        self.num_changes += 1


HELD = HeldClasses()
