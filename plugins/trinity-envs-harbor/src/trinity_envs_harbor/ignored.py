"""The files of ``environment/`` that ``.dockerignore`` keeps from a build."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from trinity_envs_harbor.safe_files import copied_inside, plain_parts

__all__ = ["Ignored", "context_of"]

_FILES = ("Dockerfile.dockerignore", ".dockerignore")  # the first that is there, as with BuildKit
_WORD = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|\\.|.", re.DOTALL)
_MEANING = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Ignored:
    """Patterns of a ``.dockerignore``, in order: each with whether it takes files back in."""

    patterns: tuple[tuple[re.Pattern[str], bool], ...]

    @classmethod
    def of(cls, text: str) -> Ignored:
        """Read the text of the file."""
        patterns = []
        for line in text.removeprefix("\ufeff").splitlines():
            pattern = "" if line.startswith("#") else line.strip()
            is_exception = pattern.startswith("!")
            parts = plain_parts(pattern[is_exception:].strip())
            if parts:
                patterns.append((_compiled("/".join(parts)), is_exception))
        return cls(patterns=tuple(patterns))

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
    file = next((environment / name for name in _FILES if (environment / name).is_file()), None)
    if file is None:
        return environment.resolve()
    ignored = Ignored.of(file.read_text(encoding="utf-8", errors="replace"))
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
                shutil.copymode(Path(above, name), made / below / name)
    return made.resolve()


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(map(_meaning, _WORD.findall(pattern))), re.DOTALL)


def _meaning(word: str) -> str:
    """Return a part of a pattern of Docker as a regular expression."""
    if word in _MEANING:
        return _MEANING[word]
    if len(word) > 1 and word[0] == "[":
        return word
    return re.escape(word[-1])
