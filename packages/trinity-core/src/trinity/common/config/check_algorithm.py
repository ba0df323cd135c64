"""Do the algorithm's parts fit each other, the mode and the group size?"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trinity.common.batch import ALIASES
from trinity.common.config.check_names import NamedPart, named_parts
from trinity.errors import ConfigError
from trinity.extend.failure import described_failure
from trinity.extend.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config.config import Config
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem
    from trinity.extend import Component

#: words that the runtime itself provides for every run
_PROVIDED = frozenset(
    {"logprobs", "old_logprob", "rewards", "group", "history", "action_mask", "advantages"}
)
#: words that a user's own workflow may provide: nobody says what a class held in hand gives
_OF_WORKFLOWS = frozenset({"teacher_logprobs"})
#: words that no built-in part provides -> what they stand for
_MEANINGS = {
    "values": "a critic's values",
    "teacher_logprobs": "a teacher model's log-probabilities",
    "reward_baselines": "the reward of the greedy answer to each prompt",
    "entropys": "the entropy of each token before the advantages",
    "necs": "the mean entropy change over candidate tokens",
    "preference_pairs": "rows of a chosen and a rejected answer",
    "plain_text_rows": "rows of plain text",
    "auxiliary_buffer": "buffer.trainer_input.auxiliary_buffers",
    "auxiliary_models": "judges or teachers, explorer.auxiliary_models",
    "expert_mask": "marks of expert rows, from sample_strategy mix",
    "task_feedback": "results of the tasks of a step, for the task selector",
}
_LOSSES = {"policy_loss_fn", "kl_fn", "entropy_loss_fn"}
_OPTIMIZERS = ("adam", "adamw")


def algorithm_problems(config: Config, parts: NamedParts) -> list[Problem]:
    """Return what the algorithm cannot work with."""
    if config.mode == "bench":
        return _unmet_needs(config, parts)
    problems = _own_check(config, parts)
    problems += _group_of_one(config, parts)
    problems += _unmet_needs(config, parts)
    problems += _penalty_of_groups(config, parts)
    if config.algorithm.optimizer.optimizer_type not in _OPTIMIZERS:
        path = "algorithm.optimizer.optimizer_type"
        message = f"{config.algorithm.optimizer.optimizer_type!r} is not supported yet."
        remedy = f"Known: {', '.join(_OPTIMIZERS)}."
        problems.append(config.source.problem(path, message, remedy, "not_yet"))
    return problems


def _own_check(config: Config, parts: NamedParts) -> list[Problem]:
    algorithm: Any = parts.load("algorithm", config.algorithm.algorithm_type)
    if not hasattr(algorithm, "check_config"):
        return []
    try:
        algorithm.check_config(config)
    except ConfigError as error:
        return [config.source.problem("algorithm.algorithm_type", str(error))]
    except Exception as error:  # noqa: BLE001 - the boundary around a plugin's code
        message = f"its check_config() failed: {described_failure(error)}."
        return [config.source.problem("algorithm.algorithm_type", message, "Correct it.")]
    return []


def _group_of_one(config: Config, parts: NamedParts) -> list[Problem]:
    name = config.algorithm.advantage_fn
    component, loaded = parts.find("advantage_fn", name), parts.load("advantage_fn", name)
    if component is None or loaded is None or config.mode not in {"both", "explore"}:
        return []
    in_groups = getattr(loaded, "computed_on", "batch") == "group"
    needs_group = getattr(loaded, "needs_group", in_groups) or "group" in component.spec.needs
    if not needs_group or config.algorithm.repeat_times != 1:
        return []
    what = f"is 1, but advantage_fn {name} compares the rollouts of a task."
    return [config.source.problem("algorithm.repeat_times", what, "Use 2 or more.")]


def _unmet_needs(config: Config, parts: NamedParts) -> list[Problem]:
    named = list(named_parts(config))
    if not config.has_trainer:  # nothing is trained, so nobody asks what works on batches
        named = [part for part in named if not _is_for_batches(part, parts)]
    found = [(part, parts.find(part.kind, part.name)) for part in named]
    provided = set(_PROVIDED)
    for _, component in found:
        provided |= component.spec.provides if component else set()
    provided |= _named_in_lists(config)
    if any(one and one.held and one.kind == "workflow" for _, one in found):
        provided |= _OF_WORKFLOWS
    if not _uses_reference(config, parts):
        provided.discard("ref_logprob")  # the trainer could, but is not asked to
    missing: dict[str, tuple[NamedPart, Component]] = {}  # the first part that needs a word
    for part, component in found:
        if component is None:
            continue
        for word in sorted(component.spec.needs - provided):
            missing.setdefault(word, (part, component))
    return [
        config.source.problem(
            part.path,
            f"{component.kind} {component.name} needs {_described(word)}, which no component of "
            "the run provides.",
            f"{_remedy(word, parts)} another {component.kind}.",
        )
        for word, (part, component) in missing.items()
    ]


def _is_for_batches(part: NamedPart, parts: NamedParts) -> bool:
    """Return whether only a trainer would call the part."""
    if part.kind != "advantage_fn":
        return part.kind in _LOSSES
    return getattr(parts.load(part.kind, part.name), "computed_on", "batch") == "batch"


def _named_in_lists(config: Config) -> set[str]:
    """Return the words for what the configuration lists, and no part provides."""
    listed = {
        "auxiliary_buffer": config.buffer.trainer_input.auxiliary_buffers,
        "auxiliary_models": config.explorer.auxiliary_models,
    }
    return {word for word, names in listed.items() if names}


def _remedy(word: str, parts: NamedParts) -> str:
    if word == "auxiliary_buffer":
        return "Name a file of expert rows there, or choose"
    if word == "auxiliary_models":
        return "List them there, each with name and model_path, or choose"
    components = (c for kind in KINDS for c in parts.manager.components(kind))
    if any(word in component.spec.provides for component in components):
        return f"Choose a component that provides {word!r}, or"
    return "Install a plugin that provides it, or choose"


def _described(word: str) -> str:
    return f"{word!r} ({_MEANINGS[word]})" if word in _MEANINGS else repr(word)


def _penalty_of_groups(config: Config, parts: NamedParts) -> list[Problem]:
    """Refuse a KL penalty on rewards that were compared before the reference saw them."""
    algorithm = config.algorithm
    name = algorithm.advantage_fn
    loaded, penalty = parts.load("advantage_fn", name), algorithm.kl_penalty_fn
    in_groups = getattr(loaded, "computed_on", "batch") == "group"
    if not in_groups or not _is_weighed(penalty, algorithm.kl_penalty_fn_args):
        return []
    twin = f"{name}_verl"
    known = parts.manager.names("advantage_fn")
    remedy = f"Set advantage_fn: {twin}." if twin in known else "Set kl_penalty_fn: none."
    message = f"{penalty} changes rewards after advantage_fn {name} has compared them."
    return [config.source.problem("algorithm.kl_penalty_fn", message, remedy)]


def has_reference(config: Config, parts: NamedParts) -> bool:
    """Return whether the trainer asks the reference model: a KL term or the loss reads it."""
    algorithm = config.algorithm
    if not _uses_reference(config, parts):
        return False
    if _is_weighed(algorithm.kl_loss_fn, algorithm.kl_loss_fn_args):
        return True
    if _is_weighed(algorithm.kl_penalty_fn, algorithm.kl_penalty_fn_args):
        return True
    loss: Any = parts.load("policy_loss_fn", algorithm.policy_loss_fn)
    fields = () if loss is None else inspect.signature(loss.__call__).parameters
    return any(ALIASES.get(name, name) == "ref_logprob" for name in fields)


def _is_weighed(kl_fn: str | None, args: Mapping[str, Any] | None) -> bool:
    return kl_fn not in {None, "none"} and bool((args or {}).get("kl_coef", 1.0))


def _uses_reference(config: Config, parts: NamedParts) -> bool:
    """Return whether the algorithm may compare with the reference model, or does not say it."""
    algorithm: Any = parts.load("algorithm", config.algorithm.algorithm_type)
    return not hasattr(algorithm, "setting") or bool(algorithm.setting("use_reference"))
