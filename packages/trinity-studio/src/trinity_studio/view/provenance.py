"""What a run was made of: plugins, settings with their source, what changed between starts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import yaml
from trinity.common.config.kept import flat, kept_settings
from trinity.common.secret_names import secrets_of
from trinity.common.secrets import Masker, known_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["FILES", "Provenance", "read_provenance"]

FILES = ("config.yaml", "origins.json", "plugins.json", "starts.jsonl")

_DEFAULT = "default"  # the source of a value that nobody gave
_WRITTEN = re.compile(r".+:\d+|command line|Python")  # sources of one that somebody wrote


@dataclass(kw_only=True)
class Provenance:
    """What is written down in a run directory; what cannot be read is empty and told.

    Attributes:
        settings: path, value as people may see it, and source, in the order of the file.
        plugins: of the last start, as ``plugins.json`` has them.
        starts: each start: when, from where, with what.
        masker: hides the secrets of the settings.
        values: the settings by path.
        leaves: as ``settings``, by path, with the entries of lists by their numbers; to compare.
        written: the paths of leaves that somebody wrote: in a file, with --set, in a program.
        problems: what could not be read.
    """

    settings: list[tuple[str, str, str]] = field(default_factory=list)
    plugins: list[dict[str, Any]] = field(default_factory=list)  # Any: json
    starts: list[dict[str, Any]] = field(default_factory=list)
    masker: Masker = field(default_factory=Masker)
    values: dict[str, Any] = field(default_factory=dict)
    leaves: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    @property
    def given(self) -> list[tuple[str, str, str]]:
        """Return the settings that somebody gave, or that follow from something."""
        return [one for one in self.settings if one[2] != _DEFAULT]

    @property
    def defaults(self) -> list[tuple[str, str, str]]:
        """Return the others."""
        return [one for one in self.settings if one[2] == _DEFAULT]


def read_provenance(directory: Path) -> Provenance:
    """Return what is written down of a run."""
    found = Provenance()
    config = _read(directory / FILES[0], _yaml, dict, found)
    origins = _read(directory / FILES[1], json.loads, dict, found)
    plugins = _read(directory / FILES[2], json.loads, list, found)
    found.starts = _read(directory / FILES[3], _lines, list, found) or []
    if config:
        found.values = {str(path): value for path, value in flat(kept_settings(config, directory))}
        secrets = frozenset(known_secrets()).union(
            *(_secrets_of(path, value) for path, value in found.values.items())
        )
        found.masker = Masker(secrets)
        for top, whole in flat(config):
            origin = str((origins or {}).get(top, ""))
            leaves = dict(_leaves(str(top), whole))
            texts = {path: _shown(secrets, path, value) for path, value in leaves.items()}
            alone = texts.get(str(top))
            text = _shown(secrets, str(top), whole) if alone is None else alone
            found.settings.append((str(top), text, origin))
            found.leaves |= texts
            if _WRITTEN.fullmatch(origin):
                found.written |= leaves.keys()
    found.plugins = [row for row in plugins or [] if isinstance(row, dict)]
    return found


def _secrets_of(path: str, value: Any) -> frozenset[str]:
    """Return the secrets of a setting."""
    return (
        _known_secrets_of(path, value) if isinstance(value, _PLAIN) else _new_secrets(path, value)
    )


def _new_secrets(path: str, value: Any) -> frozenset[str]:
    return frozenset(secrets_of({path: value}, env={}))


def _shown(secrets: frozenset[str], path: str, value: Any) -> str:
    """Return a setting as people may see it."""
    known = _known_text if isinstance(value, _PLAIN) else _new_text
    return known(secrets, path, value)


def _new_text(secrets: frozenset[str], path: str, value: Any) -> str:
    return str(_masker(secrets).setting(path, value))


# Runs differ in a few settings: the others are looked through once. `typed`: 1 is not True.
_PLAIN = (str, int, float, bool, type(None))
_masker = lru_cache(maxsize=64)(Masker)
_known_text = lru_cache(maxsize=1 << 14, typed=True)(_new_text)
_known_secrets_of = lru_cache(maxsize=1 << 14, typed=True)(_new_secrets)


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Give what stands in lists and in the objects of lists by its own path."""
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for key, below in value.items():
        yield from _leaves(f"{path}.{key}", below)


def _read(path: Path, parse: Callable[[str], Any], kind: type, found: Provenance) -> Any:
    """Return what a file holds; None: it is not there, or damaged, which is noted."""
    try:
        value = parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        found.problems.append(f"{path.name} cannot be read: {' '.join(str(error).split())[:200]}")
        return None
    if not isinstance(value, kind):
        found.problems.append(f"{path.name} is not what a run writes")
        return None
    return value


def _yaml(text: str) -> Any:
    """Return what a YAML file holds; the C reader takes a tenth of the time."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _lines(text: str) -> list[dict[str, Any]]:
    """Return the lines that are whole; the last may be one that a kill cut."""
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
