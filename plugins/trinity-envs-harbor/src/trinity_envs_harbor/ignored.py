"""The files of ``environment/`` that ``.dockerignore`` keeps from a build."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import BadTaskError

from trinity_envs_harbor.problems import Problem
from trinity_envs_harbor.safe_files import copied_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Ignored", "context_of", "pattern_problems"]

_FILES = ("Dockerfile.dockerignore", ".dockerignore")  # the first that is there, as with BuildKit
_WORD = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|\\.|.", re.DOTALL)
_MEANING = {"**/": "(?:.*/)?", "**": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ignored:
    """Patterns of a ``.dockerignore``, in order: each with whether it takes files back in."""

    patterns: tuple[tuple[re.Pattern[str], bool], ...]

    @classmethod
    def of(cls, text: str) -> Ignored:
        """Read the text of the file.

        Raises:
            BadTaskError: a pattern cannot be read.
        """
        found = ((_compiled(pattern), is_exception) for _, pattern, is_exception in _patterns(text))
        return cls(patterns=tuple(found))

    def matches(self, path: str) -> bool:
        """Return whether a path, relative to ``environment/``, is left out.

        A pattern that matches a folder holds for all below it, and the last one decides.
        """
        parts = path.split("/")
        paths = ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]
        is_ignored = False
        for pattern, is_exception in self.patterns:
            if is_ignored == is_exception and any(map(pattern.fullmatch, paths)):
                is_ignored = not is_exception
        return is_ignored


def context_of(environment: Path, made: Path) -> Path:
    """Return the folder that a build copies from.

    Args:
        environment: of the task.
        made: where a copy without the files that are left out is made, if any may be.
    """
    file = _file_of(environment)
    if file is None:
        return environment.resolve()
    ignored = Ignored.of(_text_of(file))
    made.mkdir()
    for above, folders, names in os.walk(environment.resolve()):
        below = Path(above).relative_to(environment.resolve())
        links = [name for name in folders if Path(above, name).is_symlink()]
        for name in (*names, *links):
            if not ignored.matches(str(below / name)):
                copied_inside(Path(above, name), made, str(below / name))
        for name in sorted(set(folders) - set(links)):
            if not ignored.matches(str(below / name)):
                (made / below / name).mkdir(parents=True, exist_ok=True)
                mode = stat.S_IMODE(Path(above, name).stat().st_mode)
                (made / below / name).chmod(mode | 0o700)  # more may be made in it
    return made.resolve()


def pattern_problems(environment: Path) -> Iterator[Problem]:
    """Yield the patterns that cannot be read, of the folder of a build."""
    file = _file_of(environment)
    if file is None:
        return
    for line, pattern, _ in _patterns(_text_of(file)):
        try:
            _compiled(pattern)
        except BadTaskError as error:
            yield Problem(file=file, line=line, what=str(error))


def _file_of(environment: Path) -> Path | None:
    return next((environment / name for name in _FILES if (environment / name).is_file()), None)


def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _patterns(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the line of each pattern, from 1, the pattern, and whether it takes files back in."""
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        given = "" if line.startswith("#") else line.strip()
        is_exception = given.startswith("!")
        pattern = given[is_exception:].strip()
        pattern = posixpath.normpath(pattern).lstrip("/") if pattern else ""
        if pattern not in {"", "."}:
            yield number, pattern, is_exception


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of Docker as a regular expression.

    As in moby's patternmatcher, ``**`` stands for whole folders, with two exceptions: at the end
    of a pattern it stands for anything, and so it does at the beginning if the rest is plain text
    (``**.log`` matches each path that ends so).

    Raises:
        BadTaskError: it cannot be read.
    """
    words = _WORD.findall(pattern)
    meanings = [_meaning(word) for word in words]
    has_plain_rest = not any(word in _MEANING or word[0] in "[]\\" for word in words[1:])
    if words[0] == "**" and has_plain_rest:
        meanings[0] = ".*"
    if words[-1] == "**":
        meanings[-1] = ".*"
    try:
        if {"[", "\\"} & {*words}:
            raise ValueError("a [ or \\ without an end")
        return re.compile("".join(meanings), re.DOTALL)
    except (re.error, ValueError) as error:
        raise BadTaskError(f"the pattern {pattern!r} cannot be read: {error}.") from error


def _meaning(word: str) -> str:
    """Return a part of a pattern of Docker as a regular expression."""
    if word in _MEANING:
        return _MEANING[word]
    if len(word) > 1 and word[0] == "[":
        return word
    return re.escape(word[-1])
