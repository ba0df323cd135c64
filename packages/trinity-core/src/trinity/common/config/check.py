"""``check``: find what is wrong with a resolved configuration. It changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.check_abilities import ability_problems
from trinity.common.config.check_algorithm import algorithm_problems
from trinity.common.config.check_names import name_problems
from trinity.common.config.check_numbers import number_problems
from trinity.common.config.check_paths import path_problems
from trinity.common.config.check_replay import replay_problems
from trinity.common.config.check_rows import row_problems
from trinity.common.config.check_support import support_problems
from trinity.common.config.parts import NamedParts

if TYPE_CHECKING:
    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.problem import Problem
    from trinity.extend import PluginManager

__all__ = ["check"]


def check(
    config: Config, machine: Machine, *, manager: PluginManager | None = None
) -> list[Problem]:
    """Return everything that is wrong with a configuration that `resolve` made.

    Names are looked up among the plugins, arguments compared with signatures, paths looked at,
    numbers compared. A problem of severity ``notice`` stops nothing.
    """
    parts = NamedParts(manager)
    return [
        *support_problems(config),
        *name_problems(config, parts),
        *ability_problems(config, parts),
        *algorithm_problems(config, parts),
        *path_problems(config),
        *row_problems(config),
        *replay_problems(config),
        *number_problems(config, machine, parts),
    ]
