"""Make the paths of a run absolute: a part of it may change the working directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trinity.common.config.model import is_hub_id
from trinity.common.config.paths import fields, value_at

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.config.config import Config

_OUTPUTS = {"checkpoint_root_dir", "input_save_path", "db_url"}
_INPUTS = {"path", "model_path", "critic_model_path", "chat_template_path"}
_BUFFER = "buffer.trainer_input.experience_buffer"
_SQLITE = "sqlite:///"


def expand_home(config: Config) -> None:
    """Put the user's folder in place of a leading ``~``; in arguments of components, of ``~/``.

    The words of a ``command`` stay: who runs it knows whether that is here or in a container.
    """
    for _, section, name, _ in list(fields(config)):
        value = getattr(section, name)
        if isinstance(value, str) and name in _OUTPUTS | _INPUTS:
            scheme, colon, file = value.rpartition(":///")  # of an SQLite file
            if file.startswith("~"):
                setattr(section, name, scheme + colon + os.path.expanduser(file))
        elif name.endswith("args") and name in section.model_fields_set:
            setattr(section, name, _below_home(value))


def _below_home(value: Any) -> Any:  # Any: of a component's arguments
    if isinstance(value, str):
        return os.path.expanduser(value) if value.startswith("~/") else value
    if isinstance(value, dict):
        return {key: one if key == "command" else _below_home(one) for key, one in value.items()}
    return [_below_home(one) for one in value] if isinstance(value, list) else value


def make_absolute(config: Config) -> None:
    """Change each relative path of a resolved configuration into one below its folder.

    Names of the Hugging Face hub and addresses stay as they are.
    """
    _keep_served_names(config)
    written = set(_OUTPUTS)
    storage = value_at(config, f"{_BUFFER}.storage_type")
    if storage in {"file", "sql"} and config.mode != "train":
        written.add(f"{_BUFFER}.path")
    for path, section, name, _ in list(fields(config)):
        value = getattr(section, name) if name in _OUTPUTS | _INPUTS else None
        if isinstance(value, str) and value:
            is_written = path in written or name in written
            setattr(section, name, _absolute(value, config.folder, is_written=is_written))


def _keep_served_names(config: Config) -> None:
    """Let a model whose name is its path be known to clients by the path as it was written."""
    explorer = config.explorer
    for section in (explorer.rollout_model, *explorer.auxiliary_models):
        is_main = section is explorer.rollout_model
        path = config.model.model_path if is_main else section.model_path
        if path and not section.name and not section.served_model_name:
            section.served_model_name = path


def _absolute(value: str, folder: Path, *, is_written: bool) -> str:
    if value.startswith(_SQLITE):
        return _SQLITE + _absolute(value.removeprefix(_SQLITE), folder, is_written=True)
    full = os.path.abspath(folder / value)
    is_name = is_hub_id(value) and not is_written and not os.path.exists(full)
    return value if is_name or "://" in value else full
