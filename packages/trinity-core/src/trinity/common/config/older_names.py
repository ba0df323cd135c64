"""Names of keys that older documents use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["with_published_names"]

_INPUT = {"task_set": "taskset", "default_workflow": "default_workflow_type"}
_TASKSET = {"default_workflow": "default_workflow_type"}
_TRAINER = {"ppo_max_token_len_per_gpu": "max_token_len_per_gpu"}


def with_published_names(
    raw: dict[str, Any], lines: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, int], list[tuple[str, str]]]:
    """Return the settings and lines under today's names, and ``(path as written, name now)``."""
    renamed: list[tuple[str, str]] = []
    new_lines = dict(lines)
    roots = [("", raw)]
    stages = raw.get("stages")
    if isinstance(stages, list):
        roots += [(f"stages.{i}.", s) for i, s in enumerate(stages) if isinstance(s, dict)]
    for prefix, root in roots:
        _rename_below(root, prefix, new_lines, renamed)
    return raw, new_lines, renamed


def _rename_below(
    root: dict[str, Any], prefix: str, lines: dict[str, int], renamed: list[tuple[str, str]]
) -> None:
    _rename(root.get("trainer"), f"{prefix}trainer", _TRAINER, lines, renamed)
    section: Any = root
    for key in ("buffer", "explorer_input"):
        section = section.get(key) if isinstance(section, dict) else None
    if not isinstance(section, dict):
        return
    path = f"{prefix}buffer.explorer_input"
    _rename(section, path, _INPUT, lines, renamed)
    _rename(section.get("taskset"), f"{path}.taskset", _TASKSET, lines, renamed)
    for name in ("tasksets", "eval_tasksets"):
        sets = section.get(name)
        for index, one in enumerate(sets if isinstance(sets, list) else []):
            _rename(one, f"{path}.{name}.{index}", _TASKSET, lines, renamed)


def _rename(
    section: Any,
    path: str,
    names: Mapping[str, str],
    lines: dict[str, int],
    renamed: list[tuple[str, str]],
) -> None:
    if not isinstance(section, dict):
        return
    for old, new in names.items():
        if old not in section or new in section:
            continue
        section[new] = section.pop(old)
        for key in [k for k in lines if k == f"{path}.{old}" or k.startswith(f"{path}.{old}.")]:
            lines[f"{path}.{new}{key.removeprefix(f'{path}.{old}')}"] = lines[key]
        renamed.append((f"{path}.{old}", new))
