"""``@WORKFLOWS.register_module("name")``: the decorator's way into the table of components."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, overload

from trinity.errors import ConflictError, UnknownComponentError, unknown_name
from trinity.extend.component import imported_target, target_of
from trinity.extend.held import HELD, HeldClass
from trinity.extend.hook_call import current_owner
from trinity.extend.manager import get_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T", bound=type)


class Registry:
    """Names and classes: of one kind of component, or, without a kind, a table of its own.

    >>> colours = Registry("colours", default_mapping={"counter": "collections.Counter"})
    >>> colours.get("counter").__name__
    'Counter'
    """

    def __init__(
        self,
        name: str,
        default_mapping: Mapping[str, str] | None = None,
        kind: str | None = None,
    ) -> None:
        self.name = name
        self.kind = kind  # None: stands alone, no plugin feeds it
        self._default_mapping = dict(default_mapping or {})
        self._own: dict[str, type] = {}

    @overload
    def register_module(
        self, module_name: str, module_cls: None = None, *, force: bool = False, lazy: bool = False
    ) -> Callable[[T], T]: ...

    @overload
    def register_module(
        self, module_name: str, module_cls: T, *, force: bool = False, lazy: bool = False
    ) -> T: ...

    def register_module(
        self,
        module_name: str,
        module_cls: T | None = None,
        *,
        force: bool = False,
        lazy: bool = False,
    ) -> T | Callable[[T], T]:
        """Register a class under a name; without a class: return a decorator that does.

        Args:
            module_name: the name that a configuration uses.
            module_cls: the class; None: this is a decorator.
            force: replace another class of yours that has the name.
            lazy: published; every registration is lazy where it can be.

        Raises:
            ConflictError: another class of yours has the name, and ``force`` is off.
        """

        def register(cls: T) -> T:
            if self.kind is None:
                self._register_own(module_name, cls, force=force)
            else:
                owner = current_owner() or get_manager().owner_of(cls.__module__)
                entry = HeldClass(kind=self.kind, name=module_name, value=cls, owner=owner)
                HELD.add(entry, force=force)
            return cls

        return register if module_cls is None else register(module_cls)

    def get(self, name: str) -> type:
        """Return the class registered under a name, or named by a dotted path.

        Raises:
            UnknownComponentError: nothing has that name.
        """
        if name in self._own:
            return self._own[name]
        if name in self._default_mapping:
            return imported_target(self._default_mapping[name])
        if self.kind is not None:
            return get_manager().load(self.kind, name)
        if "." in name or ":" in name:
            return imported_target(name)
        raise UnknownComponentError(unknown_name(f"entry of {self.name}", name, self.names()))

    def names(self) -> list[str]:
        """Return the names, sorted."""
        given = get_manager().names(self.kind) if self.kind else []
        return sorted({*self._own, *self._default_mapping, *given})

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def _register_own(self, name: str, cls: type, *, force: bool) -> None:
        known = self._own.get(name)
        is_same = known is not None and target_of(known) == target_of(cls)
        if known is not None and not is_same and not force:
            raise ConflictError(
                f"{name!r} of {self.name} is registered twice: as {target_of(known)} and as "
                f"{target_of(cls)}. Give one of them another name, or register with force=True."
            )
        self._own[name] = cls
