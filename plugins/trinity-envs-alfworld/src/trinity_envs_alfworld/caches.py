"""Keep what textworld works out again for every step and every reset.

Nothing of textworld is imported here, and none of its files is touched: the worker hands its
modules in, and these functions of theirs are replaced in its process.

    pddl2sas(domain, problem)             -> kept by text; the variant for the planner is skipped
    parsed grammar, conjunctive queries   -> kept by text
    copy_context                          -> copies the tables, not the things they name
"""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

__all__ = ["NUM_GAMES_KEPT", "install", "obstacle"]

NUM_GAMES_KEPT = 16  # a translated game of 28 receptacles takes about 2 MB
_NUM_TEXTS_KEPT = 4096  # a grammar has about 100


def obstacle(*, logic: ModuleType, textgen: ModuleType) -> str:
    """Return why these modules cannot be helped; empty: they are as expected."""
    try:
        translate = set(inspect.signature(logic.fast_downward.pddl2sas).parameters)
        query = set(inspect.signature(textgen.Rule.parse_conjunctive_query).parameters)
        inspect.signature(logic._parse_and_convert)
        inspect.signature(textgen._parse_and_convert)
        inspect.signature(textgen.copy_context)
    except (AttributeError, TypeError, ValueError) as error:
        return str(error)
    if translate != {"domain", "problem", "verbose", "optimize"}:
        return f"pddl2sas takes {sorted(translate)}"
    return "" if len(query) == 1 else f"parse_conjunctive_query takes {sorted(query)}"


def install(*, logic: Any, textgen: Any) -> None:  # Any: attributes are set
    """Replace the functions of this process with ones that remember."""
    if hasattr(logic.fast_downward.pddl2sas, "is_remembered"):
        return
    logic.fast_downward.pddl2sas = _translation(logic.fast_downward.pddl2sas)
    logic._parse_and_convert = lru_cache(NUM_GAMES_KEPT)(logic._parse_and_convert)  # only read
    textgen._parse_and_convert = _parser(textgen._parse_and_convert)
    query = lru_cache(_NUM_TEXTS_KEPT)(textgen.Rule.parse_conjunctive_query)
    textgen.Rule = SimpleNamespace(parse_conjunctive_query=query)
    textgen.copy_context = _copied


def _translation(pddl2sas: Callable[..., Any]) -> Callable[..., Any]:
    kept: OrderedDict[tuple[str, str], Any] = OrderedDict()

    def remembered(
        domain: str,
        problem: str,
        verbose: bool = False,  # noqa: FBT001, FBT002 -- the published signature
        optimize: bool = False,  # noqa: FBT001, FBT002
    ) -> Any:
        if optimize:  # for the planner, which nobody asks
            return None, ""
        key = (domain, problem)
        if key not in kept:
            kept[key] = pddl2sas(domain, problem, verbose=verbose)
            if len(kept) > NUM_GAMES_KEPT:
                kept.popitem(last=False)
        kept.move_to_end(key)
        return kept[key]

    remembered.is_remembered = True  # type: ignore[attr-defined]
    return remembered


def _parser(parse_and_convert: Callable[..., Any]) -> Callable[..., Any]:
    parsed = lru_cache(_NUM_TEXTS_KEPT)(parse_and_convert)

    def remembered(*args: Any, **options: Any) -> Any:
        return copy.deepcopy(parsed(*args, **options))  # who asked writes into it

    return remembered


def _copied(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context with tables of its own; what they name is only read."""
    variables, mapping = dict(context["variables"]), dict(context["mapping"])
    return {**context, "variables": variables, "mapping": mapping}
