"""Which run directory an evaluation gets, so that it replaces no other one."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import yaml
from trinity.common.config import probe, resolve_stages
from trinity.common.config.kept import CONFIG, kept_files
from trinity.common.config.preparation import run_manager
from trinity.runtime.record.rundir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trinity.common.config import Config

_NAMES = {"name", "ray_namespace"}
_OF_ENGINES = {"engine_num", "gpu_memory_utilization"}  # --local may change them, as `cluster`


def with_own_folder(config_named: Callable[[str], Config], name: str) -> Config:
    """Return the configuration with the first name whose folder has no other evaluation.

    Args:
        config_named: gives the configuration of a name.
        name: the first one to try; then ``name-2``, ``name-3``, ...
    """
    for number in itertools.count(1):
        tried = name if number == 1 else f"{name}-{number}"
        config = config_named(tried)
        if config.name != tried or _is_free_for(config):  # another one if --set gave it
            return config
    raise AssertionError("unreachable: the numbers have no end")


def _is_free_for(config: Config) -> bool:
    """Return whether the folder is new, or is that of the same evaluation, which is repeated."""
    folder: Path = RunDir.of(config).path
    try:
        kept = _of_what_it_does((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except (ValueError, yaml.YAMLError):
        return False  # nobody can say what it is
    machine = probe(model_path=config.model.model_path)
    resolved = resolve_stages(config, machine, manager=run_manager(config))[0]
    return bool(kept == _of_what_it_does(kept_files(resolved)[CONFIG]))


def _of_what_it_does(text: str) -> dict[str, Any]:  # Any: yaml
    """Return the settings without names, and without what follows from where the engines run.

    Raises:
        ValueError: they are not as a run writes them.
    """
    settings = yaml.safe_load(text)
    try:
        model = settings["explorer"]["rollout_model"]
        model = {key: value for key, value in model.items() if key not in _OF_ENGINES}
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("no settings of a run") from error
    named = {key: value for key, value in settings.items() if key not in {*_NAMES, "cluster"}}
    return {**named, "explorer": {**settings["explorer"], "rollout_model": model}}
