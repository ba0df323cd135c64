"""A YAML text as far as it can be read, the lines of its keys, and what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.common.config.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from yaml.nodes import Node  # type: ignore[import-untyped]


def yaml_lines(text: str, *, file: str) -> tuple[dict[str, int], list[Problem]]:
    """Return the line of every key by its dotted path, and what is wrong with the YAML itself."""
    import yaml  # type: ignore[import-untyped]

    try:
        root = yaml.compose(text)
    except yaml.YAMLError as error:
        return {}, [syntax_problem(error, file=file)]
    lines: dict[str, int] = {}
    problems: list[Problem] = []
    if not isinstance(root, yaml.MappingNode):
        remedy = "A configuration is a mapping, such as `mode: both`."
        return {}, [_of_file("holds no settings.", remedy, file=file)]
    try:
        _walk(root, "", lines, problems, file)
    except RecursionError:
        remedy = "Replace its alias, *name, by the value."
        return {}, [_of_file("has an anchor that contains itself.", remedy, file=file)]
    return lines, problems


def _of_file(message: str, remedy: str, *, file: str) -> Problem:
    return Problem(path="the file", message=message, remedy=remedy, where=f"{file}:1")


CUT = "this line"  # path of what is wrong with a file that is no YAML from there on


def syntax_problem(error: Exception, *, file: str) -> Problem:
    """Return what the reader of YAML has to say, with the line."""
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 1
    what = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return Problem(
        path=CUT,
        message=f"is no YAML: {what}.",
        remedy="Look at the indentation, the colons and the quotes here and one line above.",
        where=f"{file}:{line}",
    )


def _walk(node: Node, path: str, lines: dict[str, int], problems: list[Problem], file: str) -> None:
    from yaml.nodes import MappingNode, SequenceNode

    if isinstance(node, MappingNode):
        for key, value in node.value:
            below = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if below in lines:
                problems.append(_twice(below, file=file, line=line, first=lines[below]))
            lines[below] = line
            _walk(value, below, lines, problems, file)
    elif isinstance(node, SequenceNode):
        for index, item in enumerate(node.value):
            below = f"{path}.{index}"
            lines[below] = item.start_mark.line + 1
            _walk(item, below, lines, problems, file)


def _twice(path: str, *, file: str, line: int, first: int) -> Problem:
    return Problem(
        path=path,
        message=f"is given twice, in line {first} too.",
        remedy="Keep one of them.",
        where=f"{file}:{line}",
    )


_KEY_AT_THE_MARGIN = re.compile(r"[\"']?(\w[^:\"']*)[\"']?\s*:(\s|$)")


@dataclass(frozen=True, kw_only=True)
class Document:
    """What a text says, and what of it cannot be read.

    Attributes:
        values: the settings, interpolations as they are written; None: nothing can be read.
        lines: line of each key by its dotted path.
        problems: what cannot be read.
        left_out: the sections that are missing from ``values`` for it.
    """

    values: dict[str, Any] | None = None
    lines: dict[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class _Section:
    """A key of the top level: its name and its lines, the last excluded."""

    name: str
    first: int
    end: int


def read_document(text: str, *, file: str) -> Document:
    """Return the document, without those sections of the top level that are broken."""
    whole = _read(text, file=file)
    sections = _sections(text) if whole.problems else []
    broken: dict[_Section, tuple[Problem, ...]] = {}
    for section in sections:
        found = _read(_only(text, [section]), file=file).problems
        if found and not any(map(_is_of_an_alias, found)):  # its anchor may be in another one
            broken[section] = found
    if not broken or len(broken) == len(sections):
        told = [problem for found in broken.values() for problem in found]
        return Document(problems=tuple(told) or whole.problems) if whole.problems else whole
    rest = _read(_only(text, [s for s in sections if s not in broken]), file=file)
    told = [problem for found in broken.values() for problem in found]
    told += [problem for problem in rest.problems if not _is_of_an_alias(problem)]
    names = frozenset(section.name for section in broken)
    return Document(values=rest.values, lines=rest.lines, problems=tuple(told), left_out=names)


def _read(text: str, *, file: str) -> Document:
    """Return the whole text's document, or the first thing that cannot be read."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    lines, problems = yaml_lines(text, file=file)
    if problems:
        return Document(problems=tuple(problems))
    try:
        loaded = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except YAMLError as error:
        return Document(problems=(syntax_problem(error, file=file),))
    except OmegaConfBaseException as error:
        path = str(error.full_key or "the file")
        problem = Problem(
            path=path,
            message=f"cannot be read: {str(error).partition(chr(10))[0]}.",
            remedy="Keys are words, and a reference is written ${model.max_model_len}.",
            where=f"{file}:{lines.get(path, 1)}",
        )
        return Document(problems=(problem,))
    assert isinstance(loaded, dict), "yaml_lines lets nothing else through"
    return Document(values={str(key): value for key, value in loaded.items()}, lines=lines)


def _sections(text: str) -> list[_Section]:
    """Return the keys of the top level, as far as they stand at the margin."""
    lines = text.splitlines()
    starts = [
        (number, found[1].strip())
        for number, line in enumerate(lines)
        if (found := _KEY_AT_THE_MARGIN.match(line))
    ]
    ends = [number for number, _ in [*starts, (len(lines), "")][1:]]
    return [
        _Section(name=name, first=first, end=end)
        for (first, name), end in zip(starts, ends, strict=True)
    ]


def _only(text: str, sections: Sequence[_Section]) -> str:
    """Return the text with empty lines in place of the other sections."""
    kept = {number for section in sections for number in range(section.first, section.end)}
    lines = text.splitlines()[: max(section.end for section in sections)]
    return "".join(f"{line if number in kept else ''}\n" for number, line in enumerate(lines))


def _is_of_an_alias(problem: Problem) -> bool:
    return "undefined alias" in problem.message
