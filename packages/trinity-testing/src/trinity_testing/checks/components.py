"""What every component must be, whatever its kind."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import TYPE_CHECKING

from trinity.extend.component import imported_target
from trinity.extend.failure import described_failure
from trinity.extend.kinds import KINDS

from trinity_testing.check import Check, CheckContext, Finding

if TYPE_CHECKING:
    from trinity.extend.component import Component


def target_resolves(component: Component, _: CheckContext) -> Finding | None:
    """Find a target that cannot be imported, or is no class."""
    try:
        target = component.load()
    except ImportError as error:
        return Finding(str(error))
    if not inspect.isclass(target):
        return Finding(f"{component.spec.target} is no class but a {type(target).__name__}")
    for name in ("args_model", "checks"):
        reference = getattr(component.spec, name)
        try:
            _ = reference and imported_target(reference)
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- of the plugin's code
            return Finding(f"{name} {reference!r} cannot be imported: {described_failure(error)}")
    return None


def is_the_right_class(component: Component, context: CheckContext) -> Finding | None:
    """Find a class without the base or the methods of its kind."""
    kind, cls = KINDS[component.kind], context.load(component)
    wrong = kind.problem_of(cls)
    if wrong is not None:
        return Finding(*wrong)
    older = kind.notice_of(cls)
    return None if older is None else Finding(*older, severity="warning")


def arguments_are_documented(component: Component, context: CheckContext) -> Finding | None:
    """Find a class without a docstring, or an argument that no docstring mentions."""
    cls = context.load(component)
    if not (cls.__doc__ or "").strip():
        return Finding(f"{cls.__name__} has no docstring")
    classes = [one for one in cls.__mro__ if one is not object]
    texts = [one.__doc__ or "" for one in classes]
    texts += [getattr(vars(one).get("__init__"), "__doc__", None) or "" for one in classes]
    text = "\n".join(texts)
    names = [
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
        and name not in KINDS[component.kind].provided
    ]
    silent = [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]
    if silent:
        return Finding(f"no docstring of {cls.__name__} says what {', '.join(silent)} means")
    return None


def is_picklable_by_name(component: Component, context: CheckContext) -> Finding | None:
    """Find a class that another process cannot find by module and name."""
    cls = context.load(component)
    try:
        is_found = pickle.loads(pickle.dumps(cls)) is cls
    except (pickle.PicklingError, AttributeError, ImportError):
        is_found = False
    if not is_found:
        return Finding(f"no other process finds {cls.__module__}.{cls.__qualname__} by this name")
    return None


def abilities_are_there(component: Component, context: CheckContext) -> Finding | None:
    """Find a word of ``provides`` without the methods it stands for, or methods without it."""
    kind, cls = KINDS[component.kind], context.load(component)
    declared = kind.declared_by(component)
    for ability in kind.abilities:
        absent = kind.lacks(cls, ability)
        if ability.word in declared and absent:
            return Finding(f"it provides {ability.word!r} and has no {', '.join(absent)}")
        there = [name for name in ability.members if name not in absent]
        if there and absent and kind.base() in cls.__mro__:
            return Finding(f"it has {', '.join(there)} and no {', '.join(absent)} of its own")
    speaks = any(one.shows for one in kind.abilities if one.word in declared)
    unsaid = sorted(kind.abilities_in(cls) - declared) if speaks else []
    if unsaid:
        said = ", ".join(sorted(declared))
        return Finding(
            f"it has {', '.join(unsaid)}, but its provides declares only {said}",
            remedy="Declare them in provides, which is read before the class is imported.",
            severity="warning",
        )
    return None


ANY = frozenset({"*"})
checks = (
    Check(
        id="component.resolves",
        function=target_resolves,
        remedy="Correct the target, 'module:Class', or install what its module imports.",
        limit_s=60.0,
        kinds=ANY,
    ),
    Check(
        id="component.subclass",
        function=is_the_right_class,
        remedy="Give it the methods that its kind has.",
        kinds=ANY,
    ),
    Check(
        id="component.documented",
        function=arguments_are_documented,
        remedy="Describe each constructor argument in the docstring of the class.",
        severity="warning",
        kinds=ANY,
    ),
    Check(
        id="component.abilities",
        function=abilities_are_there,
        remedy="Give it the methods, or take the word out of its ComponentSpec.",
        kinds=ANY,
    ),
    Check(
        id="component.picklable",
        function=is_picklable_by_name,
        remedy="Define it at the top of a module, under the name it is registered by.",
        kinds=ANY,
    ),
)
