"""The parts of the algorithm and their arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from trinity.common.config.algorithm import LossAggMode
from trinity.common.config.parts import named_failure
from trinity.common.config.trainer import CriticOptimizerConfig
from trinity.extend.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config.resolve import Resolution

#: field of ``algorithm`` -> kind of component
ALGORITHM_PARTS = {
    setting.path.removeprefix("algorithm."): kind.name
    for kind in KINDS.values()
    for setting in kind.settings
    if setting.path.startswith("algorithm.") and setting.args
}
#: what an algorithm that leaves a part out gets, as published
_FALLBACK = {
    "sample_strategy": "default",
    "policy_loss_fn": "ppo",
    "kl_penalty_fn": "none",
    "kl_loss_fn": "k2",
    "entropy_loss_fn": "default",
}
_LOSS_AGG_MODE = "token-mean"


def resolve_algorithm(work: Resolution) -> None:
    """Fill in ``algorithm`` from the algorithm, its parts and the global defaults."""
    algorithm = work.config.algorithm
    loaded: Any = work.parts.load("algorithm", algorithm.algorithm_type)
    origin = f"algorithm {algorithm.algorithm_type}"
    with named_failure(f"default_config() of {origin}"):
        defaults = dict(loaded.default_config()) if hasattr(loaded, "default_config") else {}
    work.default(
        "algorithm.repeat_times",
        defaults.get("repeat_times") or 1,
        origin=origin if defaults.get("repeat_times") else "default",
    )
    if "advantage_fn" not in defaults and hasattr(loaded, "setting"):
        needs_one = loaded.setting("use_advantage")
        fallback = "ppo" if needs_one else None
        work.default("algorithm.advantage_fn", fallback, origin="default")
    if hasattr(loaded, "setting") and not loaded.setting("use_reference"):
        defaults.setdefault("kl_loss_fn", "none")  # there is nothing to keep close to
    for part, kind in ALGORITHM_PARTS.items():
        _resolve_part(work, part, kind, defaults, origin)
    _resolve_loss_agg_mode(work, defaults, origin)
    _resolve_optimizer(work)
    _resolve_critic(work)
    if hasattr(loaded, "setting"):
        schema = loaded.setting("schema")
        word = schema if isinstance(schema, str) else getattr(schema, "name", schema.__name__)
        work.schema_type = (word, origin)


def _resolve_part(
    work: Resolution, part: str, kind: str, defaults: Mapping[str, Any], origin: str
) -> None:
    path = f"algorithm.{part}"
    if part in defaults:
        work.default(path, defaults[part], origin=origin)
    elif part in _FALLBACK:
        work.default(path, _FALLBACK[part], origin="default")
    name = work.value(path)
    args: dict[str, Any] = {}
    sources = [(f"{kind} {name}", work.parts.default_args(kind, name))]
    if name == defaults.get(part):
        sources.append((origin, defaults.get(f"{part}_args") or {}))
    mode = _shared_loss_agg_mode(work, defaults, origin)
    if mode and "loss_agg_mode" in sources[0][1]:
        sources.append((mode[1], {"loss_agg_mode": mode[0]}))
    given = work.value(f"{path}_args") if work.asked(f"{path}_args") else {}
    for source, values in sources:
        for key, value in values.items():
            args[key] = value
            if key not in given:
                work.from_part(f"{path}_args.{key}", source)
    work.fill(f"{path}_args", args | given, origin=None)  # each key has its own


def _shared_loss_agg_mode(
    work: Resolution, defaults: Mapping[str, Any], origin: str
) -> tuple[str, str] | None:
    if work.asked("algorithm.loss_agg_mode"):
        return work.value("algorithm.loss_agg_mode"), "algorithm.loss_agg_mode"
    mode = defaults.get("loss_agg_mode")
    return (mode, origin) if mode else None


def _resolve_loss_agg_mode(work: Resolution, defaults: Mapping[str, Any], origin: str) -> None:
    if defaults.get("loss_agg_mode"):
        work.default("algorithm.loss_agg_mode", defaults["loss_agg_mode"], origin=origin)
        return
    of_loss = (work.value("algorithm.policy_loss_fn_args") or {}).get("loss_agg_mode")
    if of_loss not in get_args(LossAggMode):  # said by the check of the loss's arguments
        of_loss = None
    name = work.value("algorithm.policy_loss_fn")
    work.default(
        "algorithm.loss_agg_mode",
        of_loss or _LOSS_AGG_MODE,
        origin=f"policy_loss_fn {name}" if of_loss else "default",
    )


def _resolve_critic(work: Resolution) -> None:
    """Take the critic's settings from where published files have them."""
    published = "trainer.trainer_config.critic"
    raw = work.value("trainer.trainer_config")
    given = raw.get("critic") if isinstance(raw, dict) else None
    if not isinstance(given, dict):
        return
    for name in ("cliprange_value", "grad_clip", "loss_agg_mode"):
        if given.get(name) is not None:
            work.default(f"trainer.critic.{name}", given[name], origin=f"{published}.{name}")
    optim = given.get("optim")
    for name, value in optim.items() if isinstance(optim, dict) else ():
        if name in CriticOptimizerConfig.model_fields and value is not None:
            path = f"trainer.critic.optimizer.{name}"
            work.default(path, value, origin=f"{published}.optim.{name}")


def _resolve_optimizer(work: Resolution) -> None:
    optimizer = "algorithm.optimizer"
    style = work.value(f"{optimizer}.warmup_style")
    if style:
        work.note(f"{optimizer}.warmup_style is now lr_scheduler_type")
        work.default(f"{optimizer}.lr_scheduler_type", style, origin=f"{optimizer}.warmup_style")
    if work.asked(f"{optimizer}.clip_grad"):
        nearer = work.value(f"{optimizer}.clip_grad")
        if work.asked("trainer.grad_clip") and work.value("trainer.grad_clip") != nearer:
            work.note(f"{optimizer}.clip_grad {nearer} wins over trainer.grad_clip")
        work.fill("trainer.grad_clip", nearer, origin=f"{optimizer}.clip_grad")
    else:
        work.fill(
            f"{optimizer}.clip_grad", work.value("trainer.grad_clip"), origin="trainer.grad_clip"
        )
