"""The ``workflow_args`` of ``openenv_workflow``, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from trinity.common.workflows.of_task import checked_steps
from trinity.errors import ConfigError, unknown_name

from trinity_envs_openenv.action import ActionRule
from trinity_envs_openenv.observation import compiled

__all__ = ["OpenEnvSettings"]

_ELSEWHERE = ("max_env_steps",)  # read by MultiTurnWorkflow
_SCHEMES = ("http", "https", "ws", "wss")


@dataclass(frozen=True, kw_only=True)
class OpenEnvSettings:
    """How a run reaches its environment, what the model sees, and what its reply does."""

    url: str = ""  # of a server that runs; or
    folder: str = ""  # of an environment, whose server is started here
    app: str = ""  # module:variable below the folder; "": as its openenv.yaml says
    template: str = ""  # Jinja: what the model sees; "": the observation as JSON
    action: ActionRule | None = None  # what a reply does; None: the model calls tools
    reset: Mapping[str, str] = field(default_factory=dict)  # argument of reset -> key of the row
    reward: Literal["sum", "last"] = "sum"  # of an episode, from those of its steps
    timeout_s: float = 60.0  # of a reset or a step
    session_wait_s: float = 60.0  # for a server that serves as many as it can

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> OpenEnvSettings:  # Any: of the user
        """Return the settings.

        Raises:
            ConfigError: an argument is unknown, missing, or not what it must be.
        """
        known = [one.name for one in fields(cls)] + ["tools", *_ELSEWHERE]
        for name in arguments:
            if name not in known:
                raise ConfigError(unknown_name("argument of openenv_workflow", name, known))
        if "max_env_steps" in arguments:
            checked_steps(arguments["max_env_steps"], name="workflow_args.max_env_steps")
        own = {k: v for k, v in arguments.items() if k not in {"tools", "action", *_ELSEWHERE}}
        settings = cls(**own, action=_action(arguments))
        settings._check_place()
        settings._check_values()
        return settings

    def arguments_of_reset(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the environment is reset with.

        Raises:
            ConfigError: the row lacks a key.
        """
        lacking = [key for key in self.reset.values() if key not in row]
        if lacking:
            raise ConfigError(
                f"workflow_args.reset names {lacking[0]!r}, which the row lacks. It has: "
                f"{', '.join(map(str, row)) or 'nothing'}."
            )
        return {argument: row[key] for argument, key in self.reset.items()}

    def _check_place(self) -> None:
        if bool(self.url) == bool(self.folder):
            raise ConfigError(
                "openenv_workflow needs workflow_args.url, of a server that runs, or "
                "workflow_args.folder, of an environment that is to be served, one of them."
            )
        if self.url and urlsplit(str(self.url)).scheme not in _SCHEMES:
            raise ConfigError(
                f"workflow_args.url is {self.url!r}. Give one such as http://127.0.0.1:8000."
            )
        if self.folder and not Path(self.folder).is_dir():
            raise ConfigError(
                f"workflow_args.folder is {self.folder!r}, which is no folder. `openenv init NAME` "
                f"makes one."
            )

    def _check_values(self) -> None:
        compiled(self.template)
        if self.reward not in {"sum", "last"}:
            raise ConfigError(f"workflow_args.reward is {self.reward!r}. Say sum or last.")
        if not isinstance(self.reset, Mapping):
            raise ConfigError(
                f"workflow_args.reset is {self.reset!r:.80}. Give pairs: an argument of reset, and "
                f"the row's key that holds it."
            )
        for name in ("timeout_s", "session_wait_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
                raise ConfigError(f"workflow_args.{name} is {value!r}. Give seconds, above 0.")


def _action(arguments: Mapping[str, Any]) -> ActionRule | None:
    has_tools, given = arguments.get("tools", False), arguments.get("action")
    if not isinstance(has_tools, bool):
        raise ConfigError(f"workflow_args.tools is {has_tools!r}. Say true or false.")
    if has_tools == (given is not None):
        raise ConfigError(
            "openenv_workflow needs workflow_args.action, such as {field: message}, or "
            "workflow_args.tools: true for an environment of tools (MCP), one of them."
        )
    return None if has_tools else ActionRule.of(given)
