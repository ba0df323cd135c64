"""Read a workflow's arguments: which shop, seen how."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, DataError, did_you_mean

from trinity_envs_webshop.env import ObservationMode, WebShopEnv
from trinity_envs_webshop.folder import WebShopFiles, data_folder
from trinity_envs_webshop.shop import ShopSettings, open_shop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.workflows import Task

__all__ = ["DEFAULT_STEPS", "EnvSettings", "check_arguments", "num_steps_of", "session_of"]

DEFAULT_STEPS = 15
_OTHERS = ("data", "observation_mode", "max_env_steps")


@dataclass(frozen=True)
class EnvSettings:
    """What the taskset's ``workflow_args`` say.

    Attributes:
        data: the folder with the published files; None: the one that WEBSHOP_DATA names.
        observation_mode: text, text_rich or url.
        shop: how the shop is set up.
    """

    data: str | None
    observation_mode: ObservationMode
    shop: ShopSettings

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> EnvSettings:
        """Return the settings.

        Raises:
            ConfigError: there is no such argument.
        """
        names = [field.name for field in fields(ShopSettings)]
        for name in arguments:
            if name not in names and name not in _OTHERS:
                known = sorted([*names, *_OTHERS])
                raise ConfigError(
                    f"workflow_args of WebShop have no {name!r}.{did_you_mean(name, known)} "
                    f"Known: {', '.join(known)}."
                )
        shop = ShopSettings(**{name: arguments[name] for name in names if name in arguments})
        mode = arguments.get("observation_mode", "text_rich")
        return cls(arguments.get("data"), mode, shop)

    def environment(self, session: int | str) -> WebShopEnv:
        """Return an environment of the shop, which is opened once a process.

        A session that only has a name gets its goal from it, the same in every process.
        """
        shop = open_shop(data_folder(self.data), self.shop)
        rng = random.Random(f"webshop {session}")
        return WebShopEnv(shop, observation_mode=self.observation_mode, rng=rng)


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Look at what a taskset gives.

    Raises:
        ConfigError: there is no such argument.
        DataError: the data folder is not named, is none, or lacks a file.
    """
    WebShopFiles.in_folder(data_folder(EnvSettings.of(arguments).data))


def session_of(task: Task) -> int | str:
    """Return the session that a row stands for.

    Raises:
        DataError: the row names none.
    """
    given: object = task.task_desc
    if isinstance(given, bool) or not isinstance(given, (int, str)):
        raise DataError(
            f"{task.origin}: {task.format_args.prompt_key} is {given!r}, no session. Make the "
            f"dataset with get_webshop_data.py, and set format.prompt_key: task_id."
        )
    return given


def num_steps_of(task: Task) -> int:
    """Return ``workflow_args.max_env_steps``, else 15.

    Raises:
        ConfigError: it is no whole number above 0.
    """
    given = task.workflow_args.get("max_env_steps", DEFAULT_STEPS)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigError(
            f"workflow_args.max_env_steps is {given!r}. Give the most steps of a run: 1 or more."
        )
    return given
