"""A Dockerfile, as far as a sandbox can follow it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity_envs_harbor.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["Instruction", "listed_words", "read_dockerfile", "substituted", "words_of"]

_FOLLOWED = ("FROM", "WORKDIR", "COPY", "ENV", "USER", "ARG", "RUN")
_OF_WORDS = ("COPY", "WORKDIR", "ENV", "ARG")
_WITHOUT_EFFECT = ("CMD", "LABEL", "MAINTAINER")  # Harbor runs a command of its own in place of CMD
_NEEDS_NETWORK = re.compile(
    r"(?:^|[;&|(]|\b(?:sudo|env|exec|then|do)\b)\s*(?:\S+=\S+\s+)*"
    r"(?P<word>(?:apt|apt-get|apk|yum|dnf)\s+(?:-\S+\s+)*(?:update|install|add|upgrade)"
    r"|(?:python3?\s+-m\s+)?pip3?\s+install|uv\s+(?:pip|sync|add|tool)|npm\s+(?:i|ci|install)"
    r"|yarn\b|pnpm\b|cargo\s+install|go\s+(?:get|install)|gem\s+install|curl\b|wget\b"
    r"|git\s+clone)"
)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::-([^}]*))?\})")
_CONTAINER = "bwrap does not follow it: use sandbox: container"


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        name: in capitals.
        rest: all after it, lines joined.
        line: its first, from 1.
    """

    name: str
    rest: str
    line: int


def read_dockerfile(file: Path) -> tuple[list[Instruction], list[Problem]]:
    """Return the instructions that are followed, and those that cannot be."""
    kept: list[Instruction] = []
    problems: list[Problem] = []
    for one in _instructions(file.read_text(encoding="utf-8-sig", errors="replace")):
        told = _refusal(one, is_second=one.name == "FROM" and any(k.name == "FROM" for k in kept))
        if told:
            problems.append(Problem(file=file, line=one.line, what=told))
        elif one.name in _FOLLOWED:
            kept.append(one)
    if not kept or kept[0].name not in {"FROM", "ARG"}:
        what = "it does not begin with FROM. Name the base image."
        problems.append(Problem(file=file, line=1, what=what))
    return kept, problems


def substituted(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with ``$NAME``, ``${NAME}`` and ``${NAME:-else}`` replaced, as Docker does.

    >>> substituted("${HOME}/x$NONE", {"HOME": "/app"})
    '/app/x'
    """

    def value(found: re.Match[str]) -> str:
        return variables.get(found.group(1) or found.group(2)) or found.group(3) or ""

    return _VARIABLE.sub(value, text)


def words_of(rest: str) -> list[str]:
    """Return the words of an instruction: a JSON list, or words as a shell reads them.

    Raises:
        ValueError: a quotation is not closed.
    """
    return listed_words(rest) or shlex.split(rest)


def listed_words(rest: str) -> list[str]:
    """Return the words of a JSON list of texts; none: it is no such list, as Docker sees it.

    >>> listed_words('["sh", "-c", "ls"]'), listed_words("[ -d /app ] || mkdir /app")
    (['sh', '-c', 'ls'], [])
    """
    try:
        words = json.loads(rest) if rest.lstrip().startswith("[") else []
    except ValueError:
        return []
    is_list = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return words if is_list else []


def _instructions(text: str) -> Iterator[Instruction]:
    joined, began = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#"):
            continue
        began = began if joined else number
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        if (joined + line).strip():
            yield _instruction(joined + line, began)
        joined = ""
    if joined.strip():
        yield _instruction(joined, began)


def _instruction(text: str, line: int) -> Instruction:
    name, *rest = text.strip().split(maxsplit=1)
    return Instruction(name=name.upper(), rest=rest[0] if rest else "", line=line)


def _refusal(one: Instruction, *, is_second: bool) -> str:
    """Return why an instruction cannot be followed; "": it can."""
    if is_second:
        return f"a second FROM: a build of several stages. {_CONTAINER}; use one stage."
    if one.name not in (*_FOLLOWED, *_WITHOUT_EFFECT):
        return (
            f"{one.name} is not followed. {_CONTAINER}; use FROM, WORKDIR, COPY, ENV, USER, ARG "
            f"and RUN without the network."
        )
    if one.name == "RUN":
        return _refused_run(one.rest)
    if one.name == "COPY" and re.search(r"--from\b", one.rest):
        return f"COPY --from takes files of another image. {_CONTAINER}; put them in environment/."
    try:
        has_words = bool(words_of(one.rest) if one.name in _OF_WORDS else one.rest)
    except ValueError as error:
        return f"{one.name} cannot be read: {error}."
    return "" if has_words else f"{one.name} says nothing."


def _refused_run(command: str) -> str:
    if "<<" in command:
        return "a RUN with a here-document is not read. Write a script, COPY it and RUN that."
    if found := _NEEDS_NETWORK.search(command):
        return (
            f"`{' '.join(found.group('word').split())}` needs the network, which bwrap has not. "
            f"Use sandbox: container; or remove the line, where this machine has the programs."
        )
    return ""
