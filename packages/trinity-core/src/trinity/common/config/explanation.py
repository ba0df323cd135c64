"""Every problem at once: of a file that cannot be read whole, what is wrong with the rest too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.check import check
from trinity.common.config.config import Config
from trinity.common.config.load import read_config
from trinity.common.config.machine import probe
from trinity.common.config.paths import is_number_at
from trinity.common.config.preparation import run_manager
from trinity.common.config.problem import config_error
from trinity.common.config.resolve import resolve_stages
from trinity.errors import TrinityError

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from trinity.common.config.load import Reading
    from trinity.common.config.problem import Problem


def load_or_explain(
    path: str | os.PathLike[str],
    *,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Config:
    """Return what `load_config` returns; where it cannot, look at the rest of the file too.

    Args:
        path: the file.
        overrides: ``a.b=value`` settings that win over the file; values are YAML.
        env: where ``${oc.env:NAME,default}`` looks; None: the process's environment.

    Raises:
        ConfigError: the file cannot be read; the message lists that, and the names, paths, rows
            and numbers that are wrong whatever was meant there.
    """
    reading = read_config(path, overrides=overrides, env=env)
    if reading.config is None or reading.problems:
        problems = [*reading.problems, *further_problems(reading)]
        raise config_error(problems, name=reading.file)
    return reading.config


def further_problems(reading: Reading) -> list[Problem]:
    """Return what is wrong with the part that could be read."""
    if reading.config is None or _is_about("plugins", reading.left_out):
        return []
    config = reading.config
    machine = probe(model_path=config.model.model_path)
    try:
        manager = run_manager(config)
        stages = resolve_stages(config, machine, manager=manager)
    except TrinityError:  # of a part's own code; it is told once the file can be read
        return []
    found = [
        problem
        for stage in stages
        for problem in check(stage, machine, manager=manager, guessed=_guesses(reading.left_out))
    ]
    return [
        problem
        for problem in found
        if problem.severity != "notice"
        and not _is_about(problem.path, reading.left_out)
        and (problem.where or not reading.is_cut)  # what is missing may stand below the mistake
    ]


def _guesses(left_out: Collection[str]) -> set[str]:
    """Return what of the rest stands on values that are missing."""
    if _is_about("mode", left_out):
        return {"mode", "algorithm", "numbers"}
    guesses = {"algorithm", "numbers"} if _is_about("algorithm", left_out) else set()
    has_number = any(is_number_at(Config, path) for path in left_out)
    return guesses | ({"numbers"} if has_number else set())


def _is_about(path: str, left_out: Collection[str]) -> bool:
    """Return whether a path is one that was left out, or stands above or below one."""
    return any(
        path == one or path.startswith(f"{one}.") or one.startswith(f"{path}.") for one in left_out
    )
