"""Published settings: the older names of keys, and the features that do not exist yet."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trinity.common.config.base import StrictModel

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.common.config.config import Config
    from trinity.common.config.problem import Problem

_INPUT = {"task_set": "taskset", "default_workflow": "default_workflow_type"}
_TASKSET = {"default_workflow": "default_workflow_type"}
_TRAINER = {"ppo_max_token_len_per_gpu": "max_token_len_per_gpu"}


def with_published_names(
    raw: dict[str, Any], lines: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, int], list[tuple[str, str]]]:
    """Return the settings and lines under today's names, and ``(path as written, name now)``."""
    renamed: list[tuple[str, str]] = []
    new_lines = dict(lines)
    roots = [("", raw)]
    stages = raw.get("stages")
    if isinstance(stages, list):
        roots += [(f"stages.{i}.", s) for i, s in enumerate(stages) if isinstance(s, dict)]
    for prefix, root in roots:
        _rename_below(root, prefix, new_lines, renamed)
    return raw, new_lines, renamed


def _rename_below(
    root: dict[str, Any], prefix: str, lines: dict[str, int], renamed: list[tuple[str, str]]
) -> None:
    _rename(root.get("trainer"), f"{prefix}trainer", _TRAINER, lines, renamed)
    section: Any = root
    for key in ("buffer", "explorer_input"):
        section = section.get(key) if isinstance(section, dict) else None
    if not isinstance(section, dict):
        return
    path = f"{prefix}buffer.explorer_input"
    _rename(section, path, _INPUT, lines, renamed)
    _rename(section.get("taskset"), f"{path}.taskset", _TASKSET, lines, renamed)
    for name in ("tasksets", "eval_tasksets"):
        sets = section.get(name)
        for index, one in enumerate(sets if isinstance(sets, list) else []):
            _rename(one, f"{path}.{name}.{index}", _TASKSET, lines, renamed)


def _rename(
    section: Any,
    path: str,
    names: Mapping[str, str],
    lines: dict[str, int],
    renamed: list[tuple[str, str]],
) -> None:
    if not isinstance(section, dict):
        return
    for old, new in names.items():
        if old not in section or new in section:
            continue
        section[new] = section.pop(old)
        for key in [k for k in lines if k == f"{path}.{old}" or k.startswith(f"{path}.{old}.")]:
            lines[f"{path}.{new}{key.removeprefix(f'{path}.{old}')}"] = lines[key]
        renamed.append((f"{path}.{old}", new))


def support_problems(config: Config) -> list[Problem]:
    """Return a problem for each setting of a feature that is still to come."""
    return [
        *_below(config, "", config),
        *_templates_of_tasks(config),
        *_missing_peft(config),
        *_unused_adapters(config),
        *_repeated_models(config),
        *_external_models(config),
        *_unwatched(config),
    ]


def _unwatched(config: Config) -> Iterator[Problem]:
    """Yield what follows evaluations that the run does not make, and a rollback to nothing."""
    stopping = config.trainer.early_stopping
    names = ["keep_best"] if config.trainer.keep_best is not None else []
    names += ["early_stopping"] if stopping is not None and stopping.patience else []
    given = [one.name for one in config.buffer.explorer_input.eval_tasksets]
    back = [f"advisors.{name}" for name, action in config.advisors.items() if action == "rollback"]
    for path in back if config.trainer.keep_best is None else ():
        what = "goes back to the best checkpoint, and none is kept."
        yield config.source.problem(path, what, "Set trainer.keep_best: {}.")
    for name in names if config.has_trainer else ():
        path = f"trainer.{name}"
        if config.mode != "both" or not given:
            is_shared = "/" in config.name and config.source.written("trainer") == "trainer"
            what = f"follows evaluations, and {config.name} makes none."
            remedy = "Add buffer.explorer_input.eval_tasksets, in mode both."
            # Another stage that shares the section may make some.
            yield config.source.problem(path, what, remedy, "notice" if is_shared else "error")
            continue
        metric = getattr(config.trainer, name).metric
        if metric and not any(metric.startswith(f"eval/{one}/") for one in given):
            what = f"{metric!r} is of no evaluation set."
            remedy = f"Write eval/{given[0]}/reward/mean@k, or leave it out."
            yield config.source.problem(f"{path}.metric", what, remedy)


def _repeated_models(config: Config) -> Iterator[Problem]:
    """Yield the auxiliary models that have the name of an earlier one."""
    names = [one.name for one in config.explorer.auxiliary_models]
    for index, name in enumerate(names):
        if name is not None and name in names[:index]:
            path = f"explorer.auxiliary_models.{index}.name"
            what = f"{name!r} is also the name of entry {names.index(name)}."
            yield config.source.problem(path, what, "Give each auxiliary model a name of its own.")


def _external_models(config: Config) -> Iterator[Problem]:
    """Yield the models behind an API that nobody could ask, or train."""
    is_evaluated, path = config.model.external_model.enable, "model.external_model.enable"
    if config.explorer.rollout_model.external_model_config.enable and not is_evaluated:
        path = "explorer.rollout_model.external_model_config.enable"
        what = "is true, but only model.external_model has an effect."
        yield config.source.problem(path, what, "To evaluate such a model, set that in mode bench.")
    elif is_evaluated and config.mode != "bench":
        what = "a model behind an external API cannot be trained."
        yield config.source.problem(path, what, "Use mode bench to evaluate it.")
    for index, section in enumerate(config.explorer.auxiliary_models):
        api = section.external_model_config
        unset = [name for name in ("model_path", "engine_type") if not getattr(section, name)]
        if is_evaluated and unset and not api.enable:
            what = f"names no {' and '.join(unset)}; an external API has none to take over."
            yield config.source.problem(f"explorer.auxiliary_models.{index}", what, "Name one.")
        if api.enable and not (api.model_name or section.model_path):
            path = f"explorer.auxiliary_models.{index}.external_model_config.model_name"
            what = "is missing; requests to the API need the name of a model."
            yield config.source.problem(path, what, "Give the model's name at the API.")


def _unused_adapters(config: Config) -> Iterator[Problem]:
    name = config.trainer.trainer_type
    if config.model.adapters and config.mode != "both":
        what = f"has several adapters, which mode {config.mode} would not train or sample."
        yield config.source.problem("model.lora_configs", what, "Use mode both, or one entry.")
    elif config.model.adapters and name != "multi_lora" and not config.model.tinker.enable:
        what = f"is {name!r}, but model.lora_configs has several adapters."
        yield config.source.problem("trainer.trainer_type", what, "Leave it out.")


def _missing_peft(config: Config) -> Iterator[Problem]:
    is_used = config.model.lora_configs and config.has_trainer
    if is_used and find_spec("peft") is None:
        remedy = "Install it: pip install 'trinity-core[lora]'."
        what = "needs peft, which is not installed."
        yield config.source.problem("model.lora_configs", what, remedy)


def _templates_of_tasks(config: Config) -> Iterator[Problem]:
    """Yield the chat templates of task sets; only supervised rows have one of their own."""
    given = config.buffer.explorer_input
    for name in ("tasksets", "eval_tasksets"):
        for index, taskset in enumerate(getattr(given, name)):
            if taskset.format.chat_template is not None:
                path = f"buffer.explorer_input.{name}.{index}.format.chat_template"
                what = "is not supported yet for tasks; only supervised rows use it."
                remedy = "Set model.custom_chat_template; it applies to every prompt."
                yield config.source.problem(path, what, remedy, "not_yet")


def _below(value: Any, path: str, config: Config) -> Iterator[Problem]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _below(item, f"{path}.{index}", config)
    if not isinstance(value, StrictModel):
        return
    for name, info in type(value).model_fields.items():
        below = f"{path}.{name}" if path else name
        extra = info.json_schema_extra
        assert isinstance(extra, dict), f"{below} is not classified"
        given = getattr(value, name)
        default = info.get_default(call_default_factory=True)
        if extra["status"] == "not_yet":
            if _is_refused(given, default, extra):
                yield _problem(config, below, given, default)
            continue
        yield from _below(given, below, config)


def _is_refused(given: Any, default: Any, extra: dict[str, Any]) -> bool:
    if "switch" in extra or given == default or given in extra.get("accepted", ()):
        return False
    return given in extra["values"] if "values" in extra else True


def _problem(config: Config, path: str, given: Any, default: Any) -> Problem:
    shown = repr(given) if isinstance(given, str | int | float | bool) else "this setting"
    simple = isinstance(default, str | int | float | bool)
    remedy = f"Leave it out, or at {default!r}." if simple else "Leave it out."
    return config.source.problem(path, f"{shown} is not supported yet.", remedy, "not_yet")
