"""``check``: find what is wrong with a resolved configuration. It changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.check_abilities import ability_problems
from trinity.common.config.check_active_groups import active_group_problems, replay_problems
from trinity.common.config.check_algorithm import algorithm_problems
from trinity.common.config.check_calls import call_problems
from trinity.common.config.check_names import monitor_problems, name_problems, problems_of_parts
from trinity.common.config.check_numbers import number_problems
from trinity.common.config.check_paths import path_problems
from trinity.common.config.check_ranks import rank_problems
from trinity.common.config.check_rows import row_problems
from trinity.common.config.check_support import support_problems
from trinity.common.config.parts import NamedParts

if TYPE_CHECKING:
    from collections.abc import Collection

    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.problem import Problem
    from trinity.extend import PluginManager


def check(
    config: Config,
    machine: Machine,
    *,
    manager: PluginManager | None = None,
    guessed: Collection[str] = (),
) -> list[Problem]:
    """Return everything that is wrong with a configuration that `resolve` made.

    Names are looked up among the plugins, arguments compared with signatures, paths looked at,
    numbers compared. A problem of severity ``notice`` stops nothing.

    Args:
        config: what `resolve` made.
        machine: what it was resolved for.
        manager: the plugins; None: the process's.
        guessed: what is not known of a file that could not be read whole, and so not checked:
            ``mode``, ``algorithm``, ``numbers``.
    """
    parts = NamedParts(manager)
    problems = [*support_problems(config), *name_problems(config, parts), *monitor_problems(config)]
    has_mode = not config.is_plugin_mode or parts.find("run_mode", config.mode) is not None
    if has_mode and "mode" not in guessed:
        problems += ability_problems(config, parts)
        problems += [*path_problems(config), *row_problems(config), *replay_problems(config)]
        problems += [*problems_of_parts(config, parts), *active_group_problems(config, parts)]
        problems += rank_problems(config, machine, parts)
    if "algorithm" not in guessed:
        problems += [*algorithm_problems(config, parts), *call_problems(config, parts)]
    if "numbers" not in guessed:
        problems += number_problems(config, machine, parts)
    return problems
