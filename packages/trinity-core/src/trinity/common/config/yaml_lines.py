"""Which line of a YAML file holds which key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.problem import Problem

if TYPE_CHECKING:
    from yaml.nodes import Node  # type: ignore[import-untyped]

__all__ = ["syntax_problem", "yaml_lines"]


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
        return {}, [_no_mapping(file=file)]
    try:
        _walk(root, "", lines, problems, file)
    except RecursionError:
        return {}, [_holds_itself(file=file)]
    return lines, problems


def _no_mapping(*, file: str) -> Problem:
    return Problem(
        path="the file",
        message="holds no settings.",
        remedy="A configuration is a mapping, such as `mode: both`.",
        where=f"{file}:1",
    )


def _holds_itself(*, file: str) -> Problem:
    return Problem(
        path="the file",
        message="has an anchor that holds itself.",
        remedy="Write the value out where its alias, *name, stands.",
        where=f"{file}:1",
    )


def syntax_problem(error: Exception, *, file: str) -> Problem:
    """Return what the reader of YAML has to say, with the line."""
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 1
    what = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return Problem(
        path="this line",
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
