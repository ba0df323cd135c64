"""``load_config``: read a YAML file. It may only reject."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.absolute import expand_home
from trinity.common.config.check_support import with_published_names
from trinity.common.config.document import CUT, read_document
from trinity.common.config.interpolation import resolved_values
from trinity.common.config.kept import interpolations_in
from trinity.common.config.overrides import apply_overrides, parse_overrides
from trinity.common.config.paths import leaves
from trinity.common.config.problem import Problem, Source, config_error
from trinity.common.config.validation import fitting
from trinity.common.secret_names import MASK, secrets_of
from trinity.common.secrets import MASKED, remember
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.common.config.config import Config

logger = logging.getLogger(__name__)
ORIGINS = "origins.json"  # beside the configuration that a run keeps


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a file says, and what is wrong with how it says it.

    Attributes:
        config: what can be read; None: nothing can. Where there are problems it serves to find
            further ones, and cannot be run.
        problems: what is wrong.
        left_out: dotted paths of what stands in the file and not in ``config``.
        file: the file, as it was named.
        is_cut: whether it is no YAML from some line on, so that what follows is not known.
    """

    config: Config | None
    problems: tuple[Problem, ...]
    left_out: frozenset[str]
    file: str
    is_cut: bool = False


def load_config(
    path: str | os.PathLike[str],
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Config:
    """Return the configuration that a YAML file holds, parsed and nothing more.

    Args:
        path: the file.
        overrides: ``a.b=value`` settings that win over the file; values are YAML.
        env: where ``${oc.env:NAME,default}`` looks; None: the process's environment.

    Raises:
        ConfigError: the file is not there, is no YAML, holds unknown keys or wrong types; the
            message lists every problem with its path and line.
    """
    reading = read_config(path, overrides=overrides, env=env)
    if reading.config is None or reading.problems:
        raise config_error(reading.problems, name=reading.file)
    return reading.config


def read_config(
    path: str | os.PathLike[str],
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Reading:
    """Return what a YAML file says, as far as it can be read; arguments as `load_config`'s.

    Raises:
        ConfigError: the file is not there, or is no text.
    """
    file = str(path)
    document = read_document(_text(path), file=file)
    raw, lines, older = with_published_names(document.values or {}, document.lines)
    settings, wrong = parse_overrides(overrides)
    wrong += apply_overrides(raw, settings)
    source = Source(file=file, lines=lines, overrides=frozenset(s.path for s in settings))
    variables = os.environ if env is None else env  # noqa: TID251 -- the edge for scripts
    wrong += _masked_values(raw, source=source, file=file)
    data, missing = resolved_values(raw, env=variables, source=source)
    remember(secrets_of(data, env=variables, declared=_declared(data)))
    can_be_read = document.values is not None and (bool(data) or not raw)
    config, unfit, left_out = fitting(data, source=source) if can_be_read else (None, [], set())
    problems = (*document.problems, *wrong, *missing, *unfit)
    if config is not None:
        expand_home(config)
        config._source = replace(source, interpolations=interpolations_in(raw, config))
    if not problems:
        _warn_of_older_names(older, source)
    left_out |= document.left_out | {problem.path for problem in (*wrong, *missing)}
    return Reading(
        config=config,
        problems=problems,
        left_out=frozenset(left_out),
        file=file,
        is_cut=any(problem.path == CUT for problem in document.problems),
    )


def _masked_values(raw: Mapping[str, Any], *, source: Source, file: str) -> list[Problem]:
    """Return what is wrong with a copy that a run keeps: it has no secrets."""
    place = Path(file).with_name(ORIGINS)
    origins: dict[str, str] = {}
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(place.read_text(encoding="utf-8"))
        origins = found if isinstance(found, dict) else {}
    return [
        source.problem(
            path,
            f"is {MASK}, by which a run hides a secret in the copy of its configuration.",
            f"Start the run with its own file{_origin(origins, path)}, or set {path} to the value.",
        )
        for path, value in leaves(raw)
        if isinstance(value, str) and MASKED.search(value)
    ]


def _origin(origins: Mapping[str, str], path: str) -> str:
    """Return where a value, or the nearest section above it, was written for that run."""
    while path and path not in origins:
        path = path.rpartition(".")[0]
    return f" ({origins[path]})" if path else ""


def _declared(data: Mapping[str, Any]) -> list[str]:
    """Return ``log.secrets`` of a file that may be wrong: its problems are told without secrets."""
    log = data.get("log")
    names = log.get("secrets") if isinstance(log, dict) else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigError(
            f"the configuration {str(path)!r} cannot be read: {reason}. "
            f"Relative paths count from the working directory, {Path.cwd()}."
        ) from error


def _warn_of_older_names(older: Sequence[tuple[str, str]], source: Source) -> None:
    for path, name in older:
        logger.warning("%s: write %s, the name that it has now", source.place(path), name)
