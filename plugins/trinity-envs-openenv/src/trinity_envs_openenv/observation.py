"""What an environment answers, and what of it the model sees."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Observation", "compiled", "shown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The answer to a reset or a step."""

    fields: Mapping[str, Any]
    reward: float | None  # None: none was given
    is_done: bool


def shown(template: str, observation: Observation, *, row: Mapping[str, Any], step: int) -> str:
    """Return what the model sees.

    Args:
        template: Jinja, with ``observation``, ``reward``, ``done``, ``step`` (0 after the reset)
            and ``task`` (the row); empty: the observation as JSON, without its metadata.
        observation: what the environment answered.
        row: of the taskset.
        step: how many actions there were.

    Raises:
        ConfigError: the template fails on this observation.
    """
    made = compiled(template)
    if made is None:
        seen = {name: value for name, value in observation.fields.items() if name != "metadata"}
        return json.dumps(seen, ensure_ascii=False)
    try:
        return made.render(
            observation=observation.fields,
            reward=observation.reward,
            done=observation.is_done,
            step=step,
            task=row,
        )
    except Exception as error:  # of a user's template
        names = ", ".join(map(str, observation.fields)) or "no fields"
        raise ConfigError(
            f"workflow_args.template fails: {type(error).__name__}: {error}. The observation has "
            f"{names}."
        ) from error


@cache
def compiled(template: str) -> jinja2.Template | None:
    """Return the template; None: it is empty.

    Raises:
        ConfigError: it is no Jinja.
    """
    if template == "":
        return None
    try:
        environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
        return environment.from_string(template)
    except (jinja2.TemplateError, TypeError) as error:
        raise ConfigError(
            f"workflow_args.template is no Jinja template: {error}. Correct it."
        ) from error
