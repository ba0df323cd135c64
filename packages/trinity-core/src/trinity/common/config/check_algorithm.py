"""Do the algorithm's parts fit each other, the mode and the group size?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config.check_names import named_parts
from trinity.common.config.problem import Problem
from trinity.errors import ConfigError

if TYPE_CHECKING:
    from trinity.common.config.config import Config
    from trinity.common.config.parts import Parts

__all__ = ["algorithm_problems"]

#: words that the runtime itself provides for every run
_PROVIDED = frozenset(
    {"logprobs", "old_logprob", "rewards", "group", "history", "action_mask", "advantages"}
)
_LOSSES = {"policy_loss_fn", "kl_fn", "entropy_loss_fn"}
_OPTIMIZERS = ("adam", "adamw")


def algorithm_problems(config: Config, parts: Parts) -> list[Problem]:
    """Return what the algorithm cannot work with."""
    if config.mode == "bench":
        return []
    problems = _own_check(config, parts)
    problems += _group_of_one(config, parts)
    problems += _unmet_needs(config, parts)
    if config.algorithm.optimizer.optimizer_type not in _OPTIMIZERS:
        path = "algorithm.optimizer.optimizer_type"
        message = f"{config.algorithm.optimizer.optimizer_type!r} is not supported yet."
        problems.append(
            _problem(config, path, message, f"Known: {', '.join(_OPTIMIZERS)}.", "not_yet")
        )
    return problems


def _own_check(config: Config, parts: Parts) -> list[Problem]:
    algorithm: Any = parts.load("algorithm", config.algorithm.algorithm_type)
    if not hasattr(algorithm, "check_config"):
        return []
    try:
        algorithm.check_config(config)
    except ConfigError as error:
        return [_problem(config, "algorithm.algorithm_type", str(error))]
    return []


def _group_of_one(config: Config, parts: Parts) -> list[Problem]:
    name = config.algorithm.advantage_fn
    component, loaded = parts.find("advantage_fn", name), parts.load("advantage_fn", name)
    if component is None or loaded is None or config.mode == "train":
        return []
    in_groups = getattr(loaded, "computed_on", "batch") == "group"
    needs_group = getattr(loaded, "needs_group", in_groups) or "group" in component.spec.needs
    if not needs_group or config.algorithm.repeat_times != 1:
        return []
    return [
        _problem(
            config,
            "algorithm.repeat_times",
            f"is 1, but advantage_fn {name} compares the runs of a task with each other.",
            "Use 2 or more.",
        )
    ]


def _unmet_needs(config: Config, parts: Parts) -> list[Problem]:
    named = list(named_parts(config))
    if config.mode == "explore":  # nothing is trained, so nobody asks the losses
        named = [part for part in named if part.kind not in _LOSSES]
    found = [(part, parts.find(part.kind, part.name)) for part in named]
    provided = set(_PROVIDED)
    for _, component in found:
        provided |= component.spec.provides if component else set()
    if not _has_reference(config, parts):
        provided.discard("ref_logprob")  # the trainer could, but is not asked to
    return [
        _problem(
            config,
            part.path,
            f"{component.kind} {component.name} needs {word!r}, which no part of the run provides.",
            f"Choose a part that provides {word!r}, or another {component.kind}.",
        )
        for part, component in found
        if component is not None
        for word in sorted(component.spec.needs - provided)
    ]


def _has_reference(config: Config, parts: Parts) -> bool:
    algorithm: Any = parts.load("algorithm", config.algorithm.algorithm_type)
    return not hasattr(algorithm, "setting") or bool(algorithm.setting("use_reference"))


def _problem(
    config: Config, path: str, message: str, remedy: str = "", severity: Any = "error"
) -> Problem:
    source = config.source
    return Problem(
        path=source.written(path),
        message=message,
        remedy=remedy,
        where=source.where(path),
        severity=severity,
    )
