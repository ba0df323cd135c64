"""What actions a server takes, asked once of each server."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from trinity_envs_openenv.asked import asked

if TYPE_CHECKING:
    from trinity_envs_openenv.action import ActionRule

__all__ = ["check_actions"]

_WITHIN_S = 10.0
_checked: set[tuple[str, str]] = set()


def check_actions(rule: ActionRule, *, url: str) -> None:
    """Refuse a rule whose every action the server's environment would refuse; once for each.

    A server that does not tell its schema is not asked again.

    Raises:
        ConfigError: a field is unknown there, or one is needed that nothing fills.
    """
    key = (url, repr(rule))
    if key in _checked:
        return
    schema = _schema(url)
    if schema is not None:
        rule.check_schema(schema, where=url)
    _checked.add(key)


def _schema(url: str) -> Mapping[str, Any] | None:
    parts = urlsplit(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    path = f"{parts.path.rstrip('/')}/schema"
    try:
        target = urlunsplit((scheme, parts.netloc, path, parts.query, ""))
        with asked(target, timeout_s=_WITHIN_S) as answer:
            said = json.load(answer)
    except (OSError, urllib.error.URLError, ValueError):
        return None
    action = said.get("action") if isinstance(said, Mapping) else None
    return action if isinstance(action, Mapping) else None
