"""What does not go with several adapters; each is named before a run starts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trinity.errors import TrinityError
from trinity.trainer.algorithm_builder import build_algorithm_parts
from trinity.trainer.lora import travel_alone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config import Config
    from trinity.common.config.problem import Problem

__all__ = ["problems"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")  # also a folder, and a model's name
_WHY = "model.lora_configs has several adapters"


def problems(config: Config) -> Iterator[Problem]:
    """Yield what of a resolved configuration several adapters cannot be trained with."""
    if not config.model.adapters:
        return
    yield from _names(config)
    for path, given, supported, remedy in _settings(config):
        if given not in supported:
            yield config.source.problem(path, f"is {given!r}, but {_WHY}.", remedy)
    rollout = config.explorer.rollout_model
    if rollout.engine_type == "multi_lora" and not travel_alone(config):
        yield config.source.problem(
            "explorer.rollout_model.dtype",
            f"is {rollout.dtype}, and trainer.precision {config.trainer.precision}: adapters "
            f"travel to an engine whose model is the trainer's, and {_WHY}.",
            "Leave out dtype and model_path of explorer.rollout_model.",
        )
    if _has_critic(config):
        yield config.source.problem(
            "algorithm.algorithm_type", f"has a critic, but {_WHY}.", "Use grpo."
        )
    if "/" in config.name:
        yield config.source.problem(
            "stages", f"hand on one merged model, but {_WHY}.", "Write a file for each stage."
        )


def _has_critic(config: Config) -> bool:
    try:
        return build_algorithm_parts(config.algorithm).has_critic
    except TrinityError:  # a name or an argument is wrong: said elsewhere
        return False


def _names(config: Config) -> Iterator[Problem]:
    names = config.model.adapters
    for number, name in enumerate(names):
        path = f"model.lora_configs.{number}.name"
        if not _NAME.match(name):
            yield config.source.problem(
                path,
                f"is {name!r}; each of several adapters needs one."
                if not name
                else f"is {name!r}.",
                "Use up to 64 of A-Z a-z 0-9 _ . and -, such as solver.",
            )
        elif name in names[:number]:
            yield config.source.problem(
                path, f"{name!r} is also that of entry {names.index(name)}.", "Use another name."
            )
    others = [one.name for one in config.explorer.auxiliary_models if one.name in names]
    for name in others:
        yield config.source.problem(
            "explorer.auxiliary_models",
            f"has a model {name!r}, as model.lora_configs has.",
            "Use another name.",
        )


def _settings(config: Config) -> Iterator[tuple[str, Any, tuple[Any, ...], str]]:
    """Yield path, value, supported values and remedy of settings (Any: of each one's type)."""
    trainer, rollout = config.trainer, config.explorer.rollout_model
    yield (
        "explorer.rollout_model.engine_type",
        rollout.engine_type,
        ("multi_lora",),
        "Leave it out: the embedded engine is used.",
    )
    yield (
        "trainer.trainer_strategy",
        trainer.trainer_strategy,
        ("ddp",),
        "Leave it out, or use ddp.",
    )
    for name in ("param_offload", "optimizer_offload", "offload_policy"):
        yield f"trainer.{name}", getattr(trainer, name), (False,), "Leave it out."
    yield (
        "synchronizer.sync_method",
        config.synchronizer.sync_method,
        ("memory",),
        "Use memory.",
    )
