"""Settings that are read only by a part that is not in the run; each is listed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.paths import fields

if TYPE_CHECKING:
    from trinity.common.config.resolution import Resolution

__all__ = ["note_unused"]

_GPU_ENGINE = "GPU engines"
_SUPERVISED = {
    "prompt_type",
    "messages_key",
    "tools_key",
    "chosen_key",
    "rejected_key",
    "enable_concatenated_multi_turn",
    "chat_template",
    "enable_thinking",
}


def note_unused(work: Resolution) -> None:
    """Note what was asked and nothing in this run reads."""
    unused: dict[str, list[str]] = {}
    for path, section, name, info in fields(work.config):
        extra = info.json_schema_extra
        if not isinstance(extra, dict) or name not in section.model_fields_set:
            continue
        value = getattr(section, name)
        if value == info.get_default(call_default_factory=True):
            continue
        if extra["status"] == "other" and not _is_read(work, str(extra["used_by"])):
            unused.setdefault(str(extra["used_by"]), []).append(work.config.source.written(path))
        elif _is_for_supervised_rows(path):
            unused.setdefault("files of supervised rows", []).append(
                work.config.source.written(path)
            )
        elif "switch" in extra and _is_off(section, str(extra["switch"])):
            switch = f"{path.removesuffix(name)}{extra['switch']}"
            reader = f"runs with {work.config.source.written(switch)}"
            unused.setdefault(reader, []).append(work.config.source.written(path))
    buffer = work.config.buffer.trainer_input.experience_buffer
    if buffer is not None and buffer.storage_type == "queue" and buffer.path:
        path = "buffer.trainer_input.experience_buffer.path"
        unused.setdefault("storage in files", []).append(work.config.source.written(path))
    for used_by, paths in unused.items():
        work.note(f"not used in this run, read only by {used_by}: {', '.join(paths)}")


def _is_for_supervised_rows(path: str) -> bool:
    section, _, name = path.rpartition(".")
    return "tasksets." in section and section.endswith(".format") and name in _SUPERVISED


def _is_read(work: Resolution, used_by: str) -> bool:
    if used_by != _GPU_ENGINE:
        return False
    engine = work.parts.find("rollout_engine", work.config.explorer.rollout_model.engine_type)
    return engine is not None and engine.spec.default_for != "cpu"


def _is_off(section: object, switch: str) -> bool:
    return not getattr(section, switch)
