"""Keep what textworld works out again for every step and every reset.

Nothing of textworld is imported here, and none of its files is touched: the worker hands its
modules in, and these functions of theirs are replaced in its process.

    pddl2sas(domain, problem)             -> kept by text; the variant for the planner is skipped
    pddl_to_sas(task)                     -> its long part; skipped where another process did it
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

from trinity_envs_alfworld.translations import Translation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from io import StringIO
    from types import ModuleType

__all__ = ["NUM_GAMES_KEPT", "Translator", "install", "obstacle"]

NUM_GAMES_KEPT = 16  # a translated game of 28 receptacles takes about 2 MB
_NUM_TEXTS_KEPT = 4096  # a grammar has about 100


def obstacle(*, logic: ModuleType, textgen: ModuleType, translate: ModuleType) -> str:
    """Return why these modules cannot be helped; empty: they are as expected."""
    try:
        inner = set(inspect.signature(translate.pddl_to_sas).parameters)
        outer = set(inspect.signature(logic.fast_downward.pddl2sas).parameters)
        query = set(inspect.signature(textgen.Rule.parse_conjunctive_query).parameters)
        inspect.signature(logic._parse_and_convert)
        inspect.signature(textgen._parse_and_convert)
        inspect.signature(textgen.copy_context)
    except (AttributeError, TypeError, ValueError) as error:
        return str(error)
    if outer != {"domain", "problem", "verbose", "optimize"}:
        return f"pddl2sas takes {sorted(outer)}"
    if inner != {"task"}:
        return f"pddl_to_sas takes {sorted(inner)}"
    return "" if len(query) == 1 else f"parse_conjunctive_query takes {sorted(query)}"


def install(*, logic: Any, textgen: Any, translate: Any) -> Translator:  # Any: attributes are set
    """Replace the functions of this process with ones that remember; return its translator."""
    there = logic.fast_downward.pddl2sas
    if isinstance(there, Translator):
        return there
    translator = Translator(there, pddl_to_sas=translate.pddl_to_sas)
    logic.fast_downward.pddl2sas = translator
    translate.pddl_to_sas = translator.pddl_to_sas
    logic._parse_and_convert = lru_cache(NUM_GAMES_KEPT)(logic._parse_and_convert)  # only read
    textgen._parse_and_convert = _parser(textgen._parse_and_convert)
    query = lru_cache(_NUM_TEXTS_KEPT)(textgen.Rule.parse_conjunctive_query)
    textgen.Rule = SimpleNamespace(parse_conjunctive_query=query)
    textgen.copy_context = _copied
    return translator


class Translator:
    """``pddl2sas``, which remembers what it gave, and takes the long part from elsewhere.

    Attributes:
        given: what another process translated; used for that problem alone.
    """

    def __init__(self, pddl2sas: Callable[..., Any], *, pddl_to_sas: Callable[[Any], Any]) -> None:
        self.given: Translation | None = None
        self._pddl2sas = pddl2sas
        self._pddl_to_sas = pddl_to_sas
        self._text: str | None = None  # of the problem that is being translated
        self._kept: OrderedDict[tuple[str, str], tuple[Any, str]] = OrderedDict()

    def __call__(
        self,
        domain: str,
        problem: str,
        verbose: bool = False,  # noqa: FBT001, FBT002 -- the published signature
        optimize: bool = False,  # noqa: FBT001, FBT002
    ) -> tuple[Any, str]:
        """Return the task and its text."""
        if optimize:  # for the planner, which nobody asks
            return None, ""
        key = (domain, problem)
        if key not in self._kept:
            self._text = self.given.text_for(domain, problem) if self.given else None
            self._kept[key] = self._pddl2sas(domain, problem, verbose=verbose)
            self._text = None
            if len(self._kept) > NUM_GAMES_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def pddl_to_sas(self, task: Any) -> Any:
        """Return what can write the text."""
        return self._pddl_to_sas(task) if self._text is None else _Written(self._text)

    def translation(self, domain: str, problem: str) -> Translation:
        """Return what spares another process the long part of this problem."""
        _, text = self(domain, problem)
        return Translation.of(domain, problem, text=text)


class _Written:
    """A translated task, of which nothing but the text is needed."""

    def __init__(self, text: str) -> None:
        self._text = text

    def output(self, stream: StringIO) -> None:
        stream.write(self._text)


def _parser(parse_and_convert: Callable[..., Any]) -> Callable[..., Any]:
    parsed = lru_cache(_NUM_TEXTS_KEPT)(parse_and_convert)

    def remembered(*args: Any, **options: Any) -> Any:
        return copy.deepcopy(parsed(*args, **options))  # who asked writes into it

    return remembered


def _copied(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the context with tables of its own; what they name is only read."""
    variables, mapping = dict(context["variables"]), dict(context["mapping"])
    return {**context, "variables": variables, "mapping": mapping}
