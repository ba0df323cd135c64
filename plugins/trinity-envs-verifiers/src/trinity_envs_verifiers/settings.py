"""The ``workflow_args`` of ``verifiers_workflow``, read and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from trinity.errors import ConfigError, unknown_name

__all__ = ["VerifiersSettings"]

_OURS = ("model", "client", "harness")  # of an agent, which the run says


@dataclass(frozen=True, kw_only=True)
class VerifiersSettings:
    """Which taskset, and how its tasks are run."""

    taskset: str  # an installed one's id, a module beside the YAML, or a file
    config: Mapping[str, Any] = field(default_factory=dict)  # of the taskset
    harness: str | Mapping[str, Any] | None = None  # None: the taskset's own, else direct
    agent: Mapping[str, Any] = field(default_factory=dict)  # of verifiers' AgentConfig

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> VerifiersSettings:  # Any: of the user
        """Return the settings.

        Raises:
            ConfigError: an argument is unknown, missing, or not what it must be.
        """
        known = [one.name for one in fields(cls)]
        for name in arguments:
            if name not in known:
                raise ConfigError(unknown_name("argument of verifiers_workflow", name, known))
        taskset = arguments.get("taskset")
        if not isinstance(taskset, str) or not taskset:
            raise ConfigError(
                "verifiers_workflow needs workflow_args.taskset: the id of an installed taskset, "
                "the name of a module beside the configuration, or a file."
            )
        settings = cls(**{key: value for key, value in arguments.items() if value is not None})
        settings._check()
        return settings

    def message(self) -> dict[str, Any]:
        """Return what the child is told first; it is JSON."""
        told: dict[str, Any] = json.loads(json.dumps(asdict(self), default=dict))
        return told

    def _check(self) -> None:
        if self.taskset.endswith(".py") and not Path(self.taskset).is_file():
            raise ConfigError(f"workflow_args.taskset is {self.taskset!r}, which is no file.")
        for name in ("config", "agent"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise ConfigError(f"workflow_args.{name} is {value!r:.80}. Give pairs.")
        if not isinstance(self.harness, (str, Mapping)) and self.harness is not None:
            raise ConfigError(
                f"workflow_args.harness is {self.harness!r:.80}. Give a harness's id, or its "
                f"configuration with an id."
            )
        for name in _OURS:
            if name in self.agent:
                raise ConfigError(
                    f"workflow_args.agent.{name} cannot be set: the model is the run's"
                    + (
                        ", and workflow_args.harness says the harness."
                        if name == "harness"
                        else "."
                    )
                )
