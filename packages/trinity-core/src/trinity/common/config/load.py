"""``load_config``: read a YAML file. It may only reject."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trinity.common.config.config import Config
from trinity.common.config.interpolation import resolved_values
from trinity.common.config.older_names import with_published_names
from trinity.common.config.overrides import apply_overrides, parse_overrides
from trinity.common.config.problem import Problem, config_error
from trinity.common.config.source import Source
from trinity.common.config.validation import problems_of
from trinity.common.config.yaml_lines import syntax_problem, yaml_lines
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["load_config"]

logger = logging.getLogger(__name__)


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
    file = str(path)
    text = _text(path)
    lines, problems = yaml_lines(text, file=file)
    if problems:
        raise config_error(problems, name=file)
    raw = _mapping(text, file, lines)
    raw, lines, older = with_published_names(raw, lines)
    settings, wrong = parse_overrides(overrides)
    wrong += apply_overrides(raw, settings)
    source = Source(file=file, lines=lines, overrides=frozenset(s.path for s in settings))
    data, missing = resolved_values(raw, env=_environment(env), source=source)
    config, unfit = _validated(data, source)
    if config is None or wrong or missing:
        raise config_error([*wrong, *missing, *unfit], name=file)
    _warn_of_older_names(older, source)
    config._source = source
    return config


def _text(path: str | os.PathLike[str]) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise ConfigError(
            f"the configuration {str(path)!r} cannot be read: {reason}. "
            f"Relative paths count from the working directory, {Path.cwd()}."
        ) from error


def _mapping(text: str, file: str, lines: Mapping[str, int]) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped]

    try:
        loaded = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except YAMLError as error:
        raise config_error([syntax_problem(error, file=file)], name=file) from error
    except OmegaConfBaseException as error:
        path = str(error.full_key or "the file")
        problem = Problem(
            path=path,
            message=f"cannot be read: {str(error).partition(chr(10))[0]}.",
            remedy="Keys are words, and a reference is written ${model.max_model_len}.",
            where=f"{file}:{lines.get(path, 1)}",
        )
        raise config_error([problem], name=file) from error
    assert isinstance(loaded, dict), "yaml_lines lets nothing else through"
    return {str(key): value for key, value in loaded.items()}


def _environment(env: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if env is None else env  # noqa: TID251 -- the edge for scripts


def _validated(data: dict[str, Any], source: Source) -> tuple[Config | None, list[Problem]]:
    try:
        return Config.model_validate(data), []
    except ValidationError as error:
        return None, problems_of(error, data=data, source=source)


def _warn_of_older_names(older: Sequence[tuple[str, str]], source: Source) -> None:
    for path, name in older:
        logger.warning("%s: write %s, the name that it has now", source.place(path), name)
