"""Which settings a second start of a stage changes: ``config.yaml`` says what they were."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trinity.runtime.record.second_start import is_finished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config import Config
    from trinity.runtime.display import Display
    from trinity.runtime.record.rundir import RunDir

Change = tuple[str, Any, Any]  # path, then, now (Any: yaml)

MAX_SHOWN = 5
# Asked anew each time: how long the run is, and what it does with the folder.
ASKED = {"buffer.total_epochs", "buffer.total_steps", "trainer.total_steps", "mode"}
NOT_SHOWN = "(not shown)"
ADDRESS = " at 0x"  # the repr of an object, which no two processes share
# A key or a password: env_vars hold them, arguments of monitors and workflows, and addresses.
_SECRET = re.compile(
    r"^explorer\.env_vars\.|api[_-]?key|access[_-]?key|(access|auth)[_-]?token|secret|passw"
    r"|credential|authorization|://[^/\s]+@"
    r"|[?&][\w-]*token=|(?<![a-z0-9])(?<!(?:pad|eos|bos|unk|sep|cls)[_-])token['\"]:",  # in values
    re.IGNORECASE,
)
# The last part of a path; a tokenizer has tokens of its own.
_TOKEN = re.compile(r"(^|[._-])(?<!(?:pad|eos|bos|unk|sep|cls)[_-])token$", re.IGNORECASE)


def say_changes(
    config: Config, *, before: dict[str, Any], rundir: RunDir, display: Display
) -> None:
    """Tell which settings are others than at the start before (``run.json``, Any: json)."""
    changes = changes_line(config, rundir=rundir) if before else ""
    if not changes:
        return
    remedy = ""
    if is_finished(config, before):
        remedy = "; nothing is done with that here: set another name for a run of its own"
    display.say(f"changed since the last start: {changes}{remedy}")


def changes_line(config: Config, *, rundir: RunDir) -> str:
    """Return ``path then -> now`` of each setting that differs; empty if none does.

    Values of what may be a secret are left out.

    Args:
        config: of the stage, resolved.
        rundir: of the stage, with the ``config.yaml`` of the start before; without, nothing
            differs.
    """
    shown = [_line(*change) for change in changes_of(config, rundir=rundir)]
    more = len(shown) - MAX_SHOWN
    return ", ".join(shown[:MAX_SHOWN]) + (f", and {more} more" if more > 0 else "")


def changes_of(config: Config, *, rundir: RunDir) -> list[Change]:
    """Return the settings that differ from the start before, the values of secrets among them.

    Args:
        config: of the stage, resolved.
        rundir: of the stage.
    """
    import yaml

    try:
        then = yaml.safe_load((rundir.path / "config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):  # damaged: it is written anew
        return []
    if not isinstance(then, dict):
        return []
    now = yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json", fallback=repr)))
    before, after = dict(flat(then)), dict(flat(now))
    changed = [
        (path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path) and path not in ASKED
    ]
    return [change for change in changed if ADDRESS not in str(change)]


def shown_change(change: Change) -> list[str]:
    """Return path, then and now as people may see them; of what may be a secret the path alone."""
    path, then, now = change
    if is_secret(path, then, now):
        return [path, NOT_SHOWN, NOT_SHOWN]
    return [path, _shown(then), _shown(now)]


def is_secret(path: str, *values: object) -> bool:
    """Return whether a setting may hold a secret: its path says so, or something in its values."""
    said = " ".join([path, *map(str, values)])
    return _TOKEN.search(path) is not None or _SECRET.search(said) is not None


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # Any: yaml
    """Give each value of nested mappings with its path; a list is one value, {} is none."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, part in value.items():
        yield from flat(part, f"{path}.{key}" if path else str(key))


def _line(path: str, then: Any, now: Any) -> str:  # Any: yaml
    shown = shown_change((path, then, now))
    if shown[1] == NOT_SHOWN:
        return f"{path} (values not shown)"
    return f"{path} {shown[1]} -> {shown[2]}"


def _shown(value: Any) -> str:  # Any: yaml
    text = "none" if value is None else " ".join(str(value).split())
    return text if len(text) <= 40 else f"{text[:37]}..."
