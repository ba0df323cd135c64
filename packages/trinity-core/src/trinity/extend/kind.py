"""What a kind of component is: the record, and what can be asked of it."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.extend.component import imported_target
from trinity.extend.hookspecs import PLUGIN_API

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.extend.component import Component

PLUGIN_MODE = "plugin"  # stands in ``Setting.modes`` for each mode that a plugin brings


@dataclass(frozen=True, kw_only=True, slots=True)
class Ability:
    """What a component of the kind may be able to do; ``word`` says so in ``provides``.

    Its class shows it by methods of its own, by an argument, or by an attribute of the base class.
    """

    word: str
    meaning: str = ""  # for people, and what happens without it
    members: tuple[str, ...] = ()  # the class has these, and not as the base class has them
    argument: str = ""  # the constructor takes it
    attribute: str = ""  # true of the class

    @property
    def shows(self) -> bool:
        """Return whether every class that has the ability shows it."""
        return bool(self.members or self.argument)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Where a configuration names a component; ``*`` stands for each entry of a list or mapping."""

    path: str
    means: str = ""  # which component any value there means; "": the value is its name
    args: str = ""  # where its arguments stand; "": it has none of its own
    modes: frozenset[str] = frozenset({"both", "explore", "train", PLUGIN_MODE})  # which read it
    switch: str = ""  # where it is said whether it is read; "": always
    is_key: bool = False  # the entries' keys are the names
    may_be_empty: bool = False  # "" is no name there, as null is none anywhere


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of component."""

    name: str
    hook: str
    contract: str  # "module:Name": the base class; of common.ports: or a class with its methods
    provided: tuple[str, ...] = ()  # constructor arguments that the runtime hands in
    gets_all: bool = False  # of these, also those that its constructor does not name
    provided_section: str = ""  # of the configuration: the runtime hands in its fields, too
    settings: tuple[Setting, ...] = ()
    abilities: tuple[Ability, ...] = ()
    is_pure: bool = False  # made of its own arguments alone, so that a check can make one
    core_names: tuple[str, ...] = ()  # what the runtime itself does where they are named

    @property
    def has_base(self) -> bool:
        """Return whether components must derive from the contract, not only have its methods."""
        return not self.contract.startswith("trinity.common.ports:")

    @property
    def is_protocol(self) -> bool:
        """Return whether a component only has the methods of the contract; imports it."""
        return bool(getattr(self.base(), "_is_protocol", False))

    def base(self) -> type:
        """Return the contract, importing it."""
        return imported_target(self.contract)

    def members(self) -> list[str]:
        """Return what a component of the kind has, beside its abilities."""
        optional = {name for one in self.abilities for name in (*one.members, one.attribute)}
        return [name for name in members_of(self.base()) if name not in optional]

    def missing_from(self, cls: type) -> list[str]:
        """Return what a component of the kind must have, and the class has not even from a base."""
        base, known = self.base(), dir(cls)
        needed = getattr(base, "__abstractmethods__", ()) or self.members()
        return [name for name in members_of(base) if name in needed and name not in known]

    def lacks(self, cls: type, ability: Ability) -> list[str]:
        """Return what a class lacks for an ability; of a word alone, nothing."""
        if ability.argument:
            given = inspect.signature(cls).parameters
            return [ability.argument] if ability.argument not in given else []
        base = self.base()
        if ability.attribute:  # of a class that does not derive from the base, the word says it
            has_it = getattr(cls, ability.attribute, base not in cls.__mro__)
            return [] if has_it else [ability.attribute]
        has = inspect.getattr_static  # as written: a class method is another one at each class
        defaults = {name: (None, has(base, name, None)) for name in ability.members}
        return [name for name, nothing in defaults.items() if has(cls, name, None) in nothing]

    def abilities_of(self, component: Component) -> frozenset[str]:
        """Return the abilities of a component; imports it where it does not say.

        What its ``provides`` says holds. A component that says nothing there, as a class of a
        script or a dotted path cannot, has the abilities that its class shows.
        """
        declared = self.declared_by(component)
        shown = {one.word for one in self.abilities if one.shows or one.attribute}
        if not shown or shown & declared:
            return declared
        return declared | self.abilities_in(component.load())

    def abilities_by_class(self, component: Component) -> frozenset[str]:
        """Return the abilities of a component, whose class tells more where it has the base."""
        cls = component.load()
        is_derived = self.base() in cls.__mro__
        return self.abilities_of(component) | (self.abilities_in(cls) if is_derived else set())

    def can(self, component: Component, word: str) -> bool:
        """Return whether a component has an ability, as :meth:`abilities_of` does."""
        return word in component.spec.provides or word in self.abilities_of(component)

    def declared_by(self, component: Component) -> frozenset[str]:
        """Return the abilities that a component's ``provides`` says."""
        return frozenset(one.word for one in self.abilities) & component.spec.provides

    def abilities_in(self, cls: type) -> frozenset[str]:
        """Return the abilities that a class shows."""
        return frozenset(one.word for one in self.abilities if self._shows(cls, one))

    def _shows(self, cls: type, ability: Ability) -> bool:
        if ability.attribute:
            return getattr(cls, ability.attribute, False) is True
        return ability.shows and not self.lacks(cls, ability)

    def problem_of(self, cls: type) -> tuple[str, str] | None:
        """Return why a class is none of this kind, and the remedy; None: it is one."""
        if not inspect.isclass(cls):
            return f"it is a {type(cls).__name__}, not a class", "Name a class."
        derive = f"Derive it from {self.contract.replace(':', '.')}"
        if self.has_base and self.base() not in cls.__mro__:
            return f"{cls.__name__} is no {self.base().__name__}", f"{derive}."
        if not self.has_base and (absent := ", ".join(self.missing_from(cls))):
            return f"{cls.__name__} has no {absent}", f"{derive}, or give it the same methods."
        return self.unbuildable(cls)

    def unbuildable(self, cls: type) -> tuple[str, str] | None:
        """Return why no instance of a class can be made, and the remedy; None: one can."""
        if absent := ", ".join(
            f"{name}()" for name in sorted(getattr(cls, "__abstractmethods__", ()))
        ):
            return f"{cls.__name__} does not define {absent}", "Define it."
        if self.gets_all:
            try:
                with suppress(ValueError):  # a class that derives from a builtin may not say it
                    inspect.signature(cls).bind(**dict.fromkeys(self.provided))
            except TypeError as error:
                what = f"{cls.__name__} is built with the keywords {', '.join(self.provided)}"
                return f"{what}: {error}", "Let its __init__ take these, and need no others."
        return None

    def notice_of(self, cls: type) -> tuple[str, str] | None:
        """Return what a class of this kind is told that does not derive from its base class."""
        if self.is_protocol or self.base() in cls.__mro__:
            return None
        base = self.contract.replace(":", ".")
        return (
            f"{cls.__name__} does not derive from {base}, so it has the optional methods that its "
            f"provides names, and no others; plugin API {PLUGIN_API + 1} will refuse it",
            f"Derive it from {base}, whose optional methods have defaults.",
        )

    def made(self, cls: type, own: Mapping[str, Any], **provided: Any) -> Any:
        """Return an instance: it gets its own arguments, and of the provided those it names."""
        assert set(provided) <= set(self.provided), f"{self.name}: {provided} are not described"
        return cls(**named_by(cls, provided), **own)


def members_of(contract: type) -> list[str]:
    """Return the public names and operators that a protocol or a base class has."""
    found: dict[str, None] = {}
    for cls in reversed(contract.__mro__):
        if cls.__module__.startswith("trinity."):
            names = [*vars(cls).get("__annotations__", {}), *vars(cls)]
            found |= {key: None for key in names if key in _OPERATORS or key[:1] != "_"}
    return list(found)


def parameters_of(function: Any) -> frozenset[str] | None:  # Any: a callable
    """Return the names that a function, or the class's constructor, takes; None: any."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def named_by(function: Any, given: Mapping[str, Any]) -> dict[str, Any]:  # Any: a callable
    """Return those of the arguments that the function, or the class's constructor, takes."""
    names = parameters_of(function)
    return {name: value for name, value in given.items() if names is None or name in names}


_OPERATORS = {"__call__", "__len__"}
