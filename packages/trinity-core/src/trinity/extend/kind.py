"""What a kind of component is: the record, and what can be asked of it."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.extend.component import Component

__all__ = ["Ability", "Kind", "Setting"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ability:
    """What a component of the kind may be able to do; ``word`` says so in ``provides``.

    One without protocol and argument no class shows: only the word says it.
    """

    word: str
    protocol: str = ""  # "module:Name"; its docstring says what happens without it
    argument: str = ""  # the constructor takes it: what there is instead of a protocol
    meaning: str = ""  # of a word that stands alone, and what happens without it

    @property
    def shows(self) -> bool:
        """Return whether one can see at a class whether it has the ability."""
        return bool(self.protocol or self.argument)

    def missing_from(self, cls: type) -> list[str]:
        """Return what a class lacks for it."""
        if self.argument:
            return [] if self.argument in inspect.signature(cls).parameters else [self.argument]
        if not self.protocol:
            return []
        return missing_from(cls, self.protocol)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Where a configuration names a component; ``*`` stands for each entry of a list or mapping."""

    path: str
    args: str = ""  # where its arguments stand; "": it has none of its own
    modes: frozenset[str] = frozenset({"both", "explore", "train", "serve"})  # which read it
    switch: str = ""  # where it is said whether it is read; "": always
    may_be_empty: bool = False  # "" is no name there, as null is none anywhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of component."""

    name: str
    hook: str
    contract: str  # "module:Name": the base class, or the protocol in common.ports
    provided: tuple[str, ...] = ()  # constructor arguments that the runtime hands in
    provided_section: str = ""  # of the configuration: the runtime hands in its fields, too
    settings: tuple[Setting, ...] = ()
    abilities: tuple[Ability, ...] = ()
    is_pure: bool = False  # made of its own arguments alone, so that a check can make one

    @property
    def has_base(self) -> bool:
        """Return whether components derive from the contract; else it is a protocol."""
        return not self.contract.startswith("trinity.common.ports:")

    def members(self) -> list[str]:
        """Return what every component of the kind has; imports the contract."""
        return members_of(self.contract)

    def abilities_of(self, component: Component) -> frozenset[str]:
        """Return the abilities of a component; imports it where it does not say.

        What its ``provides`` says holds. Of the abilities that a class shows, a component that
        names none there, as a class of a script or a dotted path cannot, has those for which its
        class has every method.
        """
        declared = self.declared_by(component)
        if any(one.shows for one in self.abilities if one.word in declared):
            return declared
        return declared | self.abilities_in(component.load())

    def declared_by(self, component: Component) -> frozenset[str]:
        """Return the abilities that a component's ``provides`` says."""
        return frozenset(one.word for one in self.abilities) & component.spec.provides

    def abilities_in(self, cls: type) -> frozenset[str]:
        """Return the abilities for which a class has every method."""
        shown = (one for one in self.abilities if one.shows)
        return frozenset(one.word for one in shown if not one.missing_from(cls))

    def problem_of(self, cls: type) -> tuple[str, str] | None:
        """Return why a class is none of this kind, and the remedy; None: it is one."""
        if not inspect.isclass(cls):
            return f"it is a {type(cls).__name__}, not a class", "Name a class."
        module, _, name = self.contract.partition(":")
        if not self.has_base:
            absent = missing_from(cls, self.contract)
            lacks = f"{cls.__name__} has no {', '.join(absent)}"
            return (lacks, f"Give it what the protocol {module}.{name} has.") if absent else None
        if issubclass(cls, getattr(importlib.import_module(module), name)):
            return None
        return f"{cls.__name__} is no {name}", f"Derive it from {module}.{name}."

    def made(self, cls: type, own: Mapping[str, Any], **provided: Any) -> Any:
        """Return an instance: it gets its own arguments, and of the provided those it names."""
        assert set(provided) <= set(self.provided), f"{self.name}: {provided} are not described"
        return cls(**named_by(cls, provided), **own)


def members_of(contract: str) -> list[str]:
    """Return the public names and operators that a protocol or a base class asks for."""
    module, _, name = contract.partition(":")
    found: dict[str, None] = {}
    for cls in reversed(getattr(importlib.import_module(module), name).__mro__):
        if cls is not object and cls.__module__.startswith("trinity."):
            found |= {key: None for key in vars(cls) if key in _OPERATORS or key[:1] != "_"}
    return list(found)


def missing_from(cls: type, contract: str) -> list[str]:
    """Return what the contract asks for and the class has not."""
    known = dir(cls)
    return [name for name in members_of(contract) if name not in known]


def named_by(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:  # Any: a callable
    """Return those of the arguments that the function, or the class's constructor, takes."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(given)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in given.items() if name in names}


_OPERATORS = {"__call__", "__len__"}
