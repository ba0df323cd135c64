"""Read a workflow's arguments."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, DataError, PluginError, did_you_mean

from trinity_envs_alfworld.data_check import missing_engine
from trinity_envs_alfworld.env import AlfworldEnv, create_environment
from trinity_envs_alfworld.folder import check_named_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.workflows import Task

__all__ = ["EnvSettings", "check_arguments", "environment_of"]


@dataclass(frozen=True)
class EnvSettings:
    """What the taskset's ``workflow_args`` say.

    Attributes:
        data: the data folder; None: the one that ALFWORLD_DATA names.
        fast: whether the engine keeps translations and parsed texts.
        max_env_steps: the most steps of a run.
    """

    data: str | None = None
    fast: bool = True
    max_env_steps: int = 30

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> EnvSettings:
        """Return the settings.

        Raises:
            ConfigError: there is no such argument, or it has another type.
        """
        known = [field.name for field in fields(cls)]
        for name in arguments:
            if name not in known:
                raise ConfigError(
                    f"workflow_args of ALFWorld have no {name!r}.{did_you_mean(name, known)} "
                    f"Known: {', '.join(sorted(known))}."
                )
        settings = cls(**arguments)
        if not isinstance(settings.fast, bool):
            raise ConfigError(f"workflow_args.fast is {settings.fast!r}. Write true or false.")
        if not isinstance(settings.data, str | None):
            raise ConfigError(
                f"workflow_args.data is {settings.data!r}. Give the path of a folder."
            )
        return settings


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Look at what a taskset gives, and at what is installed.

    Raises:
        ConfigError: the arguments are wrong.
        DataError: the data folder that is named is none.
        PluginError: a package of the engine is missing.
    """
    check_named_folder(EnvSettings.of(arguments).data)
    missing = missing_engine()
    if missing:
        raise PluginError(f"ALFWorld's engine cannot start: it lacks {missing}.")


def environment_of(task: Task) -> AlfworldEnv:
    """Return the environment of the game that the row names.

    Raises:
        ConfigError: the workflow's arguments are wrong.
        DataError: the row names none, or as ``create_environment``.
        PluginError, EnvError: as ``create_environment``.
    """
    settings = EnvSettings.of(task.workflow_args)
    named: object = task.task_desc
    if not isinstance(named, str) or not named:
        raise DataError(
            f"{task.origin}: {task.format_args.prompt_key} is {named!r}, no path of a game. Make "
            f"the dataset with get_alfworld_data.py, and set format.prompt_key: game_file."
        )
    return create_environment(named, data=settings.data, fast=settings.fast)
