"""The configuration as a run keeps it: interpolations as written, secrets masked.

``config.yaml`` is for people, and for who reads the settings of a run later. ``resolved.json`` says
what is not in it: values of interpolations that are no secret, and digests of all that is not
shown, by which the next start knows that something changed.
"""

from __future__ import annotations

import json
import secrets
from hashlib import pbkdf2_hmac
from typing import TYPE_CHECKING, Any

from trinity.common.config.interpolation import resolved_values
from trinity.common.config.paths import fields, leaves, value_at
from trinity.common.config.problem import Source
from trinity.common.secret_names import MASK, secrets_of
from trinity.common.secrets import masked_setting, remember

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from trinity.common.config.config import Config

CONFIG, RESOLVED = "config.yaml", "resolved.json"
_ROUNDS = 20_000  # of a digest: a password is not found by trying words
_CUT_OFF = f":{MASK}@"  # a password that is not kept: clients look for it where they do without one


def remember_secrets(config: Config, *, env: Mapping[str, str]) -> bool:
    """Let this process mask the secrets of a configuration, and return whether it holds any.

    Args:
        config: of a run.
        env: the process's environment, whose variables are named like settings.
    """
    declared = config.log.secrets
    found = secrets_of(config.model_dump(fallback=repr), env=env, declared=declared)
    remember({*found, *secrets_of(env, env={}, declared=declared)})
    return bool(found)


def shown_setting(config: Config, path: str, value: Any) -> Any:  # Any: yaml
    """Return a value below a configuration as it may be shown."""
    if isinstance(value, dict):
        below = f"{path}." if path else ""
        return {name: shown_setting(config, f"{below}{name}", one) for name, one in value.items()}
    if isinstance(value, list):
        return [shown_setting(config, f"{path}.{n}", one) for n, one in enumerate(value)]
    text, then = config.source.interpolations.get(config.source.written(path), ("", None))
    if text and then == value:
        return text
    return masked_setting(path, value, declared=config.log.secrets)


def kept_files(config: Config) -> dict[str, str]:
    """Return the files that say what the settings of a run are, by name."""
    import yaml  # type: ignore[import-untyped]

    plain = _plain(config)
    shown = shown_setting(config, "", plain)
    salt = secrets.token_hex(16)
    before, after = dict(flat(plain)), dict(flat(shown))
    hidden = {path: value for path, value in before.items() if after.get(path) != value}
    of_sections = {path for path, *_ in fields(config)}

    def can_be_told(path: str, value: Any) -> bool:
        if path not in of_sections or not isinstance(value, (str, int, float)):
            return False  # what is in a free mapping, as arguments, may be anything
        return bool(masked_setting(path, value, declared=config.log.secrets) == value)

    resolved = {
        "values": {path: value for path, value in hidden.items() if can_be_told(path, value)},
        "salt": salt,
        "digests": {path: _digest(value, salt) for path, value in hidden.items()},
    }
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return {CONFIG: text, RESOLVED: json.dumps(resolved, indent=2) + "\n"}


def kept_settings(values: Any, directory: Path, *, env: Mapping[str, str] | None = None) -> Any:
    """Return the settings of a run, with the values of interpolations that are known.

    A password that was masked is left out of its address: clients then ask their own files for it.

    Args:
        values: that its ``config.yaml`` holds (Any: yaml).
        directory: of the run.
        env: where the variables are that it was started with; None: a directory of others must not
            read them.
    """
    text = str(values)
    if not isinstance(values, dict) or ("${" not in text and MASK not in text):
        return values
    from_env = {} if env is None else resolved_values(values, env=env, source=Source())[0]
    return _filled(values, from_env, "", _resolved(directory)["values"])


def changed_settings(config: Config, directory: Path) -> list[tuple[str, Any, Any]]:
    """Return path, then and now, as they may be shown, of what differs from the start before.

    Args:
        config: of the stage, resolved.
        directory: of the run; a start before this was kept has its values in ``config.yaml``.
    """
    import yaml

    try:
        then = yaml.safe_load((directory / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):  # damaged: it is written anew
        return []
    if not isinstance(then, dict):
        return []
    plain = yaml.safe_load(yaml.safe_dump(_plain(config)))
    kept, values = dict(flat(then)), dict(flat(plain))
    shown = dict(flat(shown_setting(config, "", plain)))
    record = _resolved(directory)
    digests, salt = record["digests"], record["salt"]
    defaults = dict(flat(_plain(type(config)())))

    def is_same(path: str) -> bool:
        if path not in kept and path in defaults:  # that start knew no such setting
            return bool(values.get(path) == defaults[path])
        if path in digests:
            return path in values and bool(digests[path] == _digest(values[path], salt))
        return kept.get(path) in (values.get(path), shown.get(path))

    paths = sorted(kept.keys() | values.keys())
    return [(path, kept.get(path), shown.get(path)) for path in paths if not is_same(path)]


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # Any: yaml
    """Give each value of nested mappings with its path; a list is one value, {} is none."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, part in value.items():
        yield from flat(part, f"{path}.{key}" if path else str(key))


def interpolations_in(raw: Any, config: Config) -> dict[str, tuple[str, Any]]:
    """Return the text of each interpolation by its path, and what it became (Any: yaml)."""
    return {
        path: (text, value_at(config, path))
        for path, text in leaves(raw)
        if isinstance(text, str) and "${" in text
    }


def _plain(config: Config) -> dict[str, Any]:
    return config.model_dump(mode="json", fallback=repr)


def _digest(value: Any, salt: str) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return pbkdf2_hmac("sha256", text.encode(), bytes.fromhex(salt), _ROUNDS).hex()


def _resolved(directory: Path) -> dict[str, Any]:
    """Return what ``resolved.json`` says; empty where there is none, or a damaged one."""
    empty: dict[str, Any] = {"values": {}, "salt": "", "digests": {}}
    try:
        found = json.loads((directory / RESOLVED).read_text(encoding="utf-8"))
        bytes.fromhex(found["salt"])
        return {name: type(like)(found[name]) for name, like in empty.items()}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return empty


def _filled(value: Any, resolved: Any, path: str, known: Mapping[str, Any]) -> Any:
    """Return a value as it was when the run started, or as the environment has it now."""
    if path in known:
        return known[path]
    if isinstance(value, dict):
        inner = resolved if isinstance(resolved, dict) else {}
        below = f"{path}." if path else ""
        return {k: _filled(v, inner.get(k), f"{below}{k}", known) for k, v in value.items()}
    if isinstance(value, str) and "${" in value and resolved is not None:
        return resolved
    return value.replace(_CUT_OFF, "@") if isinstance(value, str) else value
