"""The ``workflow_args`` of ``harbor_workflow``, read and checked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from trinity.common.workflows.of_task import checked_steps
from trinity.errors import ConfigError, unknown_name

__all__ = ["ACTIONS", "AGENTS", "HarborSettings"]

AGENTS = ("bash", "command")
ACTIONS = ("tools", "fenced", "raw")


@dataclass(frozen=True, kw_only=True)
class HarborSettings:
    """How tasks are run, and what their reward is."""

    agent: str = "bash"
    command: tuple[str, ...] = ()  # of agent `command`
    binds: tuple[str, ...] = ()  # files and folders of this machine that the command reads
    images: Mapping[str, str] = field(default_factory=dict)  # base image -> host
    reward_key: str = ""  # among what the verifier writes
    action: str = "tools"  # of agent `bash`: what of a reply is run
    max_env_steps: int = 30  # replies, in each step
    resume_trajectory: bool = False  # agent `bash` remembers the earlier steps
    output_chars: int = 4000  # of a command's output that the model sees
    sandbox: str = "auto"
    allow_network: bool = False  # of sandbox `container`

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> HarborSettings:  # Any: of the user
        """Return the settings.

        Raises:
            ConfigError: an argument is unknown, or not what it must be.
        """
        known = [one.name for one in fields(cls)]
        for name in arguments:
            if name not in known:
                raise ConfigError(unknown_name("argument of harbor_workflow", name, known))
        given = {name: value for name, value in arguments.items() if value is not None}
        if given.get("command"):
            given.setdefault("agent", "command")
        for name in ("command", "binds"):
            given[name] = _words(given.get(name) or (), name)
        settings = cls(**given)
        settings._check()
        return settings

    def _check(self) -> None:
        for name, value, known in (
            ("agent", self.agent, AGENTS),
            ("action", self.action, ACTIONS),
        ):
            if value not in known:
                raise ConfigError(unknown_name(f"workflow_args.{name}", str(value), known))
        if (self.agent == "command") != bool(self.command):
            raise ConfigError(
                f"workflow_args.command is {list(self.command)!r} and workflow_args.agent "
                f"{self.agent!r}. A command, such as [python, my_agent.py], is for agent command."
            )
        if not isinstance(self.images, Mapping):
            raise ConfigError(
                f"workflow_args.images is {self.images!r:.80}. Give pairs, such as "
                f"{{python:3.11-slim: host}}."
            )
        for name in ("max_env_steps", "output_chars"):
            checked_steps(getattr(self, name), name=f"workflow_args.{name}")
        if self.resume_trajectory and self.agent != "bash":
            raise ConfigError(
                "workflow_args.resume_trajectory is for agent bash: a command begins anew in each "
                "step. Remove it."
            )
        self._check_container()
        self._check_binds()

    def _check_container(self) -> None:
        if self.sandbox == "container" and self.agent == "command":
            raise ConfigError(
                "workflow_args.sandbox is container and agent command: a command needs this "
                "Python, which an image has not. Use sandbox: bwrap, or agent: bash."
            )
        if self.allow_network and self.sandbox != "container":
            raise ConfigError(
                "workflow_args.allow_network is for sandbox: container; bwrap has no network. "
                "Remove it."
            )

    def _check_binds(self) -> None:
        for path in self.binds:
            if not Path(path).exists():
                raise ConfigError(f"workflow_args.binds: {path} is not there.")
            if Path(path).resolve() == Path("/"):
                raise ConfigError(
                    "workflow_args.binds: / would show an agent every file of this machine. Name "
                    "the folders that it needs."
                )

    def agent_command(self) -> tuple[list[str], list[tuple[Path, str]]]:
        """Return the command as it runs inside, and the files that it needs there.

        Words that name files of this machine (``~/`` is its user's home) are shown below
        ``/agent``; others stay as they are written, and a folder is one of the sandbox, or among
        ``binds``. ``python`` is the one that this runs in, with its packages.
        """
        words, shown = [], []
        for place, word in enumerate(self.command):
            path = Path(word).expanduser() if word.startswith("~/") else Path(word)
            if place == 0 and word in {"python", "python3"}:
                words.append("python3")
            elif path.is_file() and (place > 0 or "/" in word):
                at = f"/agent/{place}/{path.name}"
                shown.append((path.resolve(), at))
                words.append(at)
            else:
                words.append(word)
        if self.command[0] in {"python", "python3"}:
            shown += [(Path(one), f"/agent/packages/{n}") for n, one in enumerate(_packages())]
        shown += [(Path(one).resolve(), one) for one in self.binds]
        return words, shown


def _packages() -> list[str]:
    """Return the folders of packages of this Python."""
    found = (Path(one) for one in sys.path if one)
    return [str(one) for one in found if one.name in {"site-packages", "dist-packages"}]


def _words(given: Any, name: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, (list, tuple)):
        raise ConfigError(f"workflow_args.{name} is {given!r:.80}. Give a list of words.")
    return tuple(str(word) for word in given)
