"""Published settings whose feature does not exist yet."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trinity.common.config.base import StrictModel
from trinity.common.config.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.common.config.config import Config

__all__ = ["support_problems"]


def support_problems(config: Config) -> list[Problem]:
    """Return a problem for each setting of a feature that is still to come."""
    return [
        *_below(config, "", config),
        *_templates_of_tasks(config),
        *_missing_peft(config),
        *_missing_server(config),
        *_repeated_models(config),
        *_external_models(config),
    ]


def _repeated_models(config: Config) -> Iterator[Problem]:
    """Yield the auxiliary models that have the name of an earlier one."""
    names = [one.name for one in config.explorer.auxiliary_models]
    for index, name in enumerate(names):
        if name is not None and name in names[:index]:
            path = f"explorer.auxiliary_models.{index}.name"
            yield Problem(
                path=config.source.written(path),
                message=f"{name!r} is also the name of entry {names.index(name)}.",
                remedy="Give each auxiliary model a name of its own.",
                where=config.source.where(path),
                severity="error",
            )


def _external_models(config: Config) -> Iterator[Problem]:
    """Yield the models behind an API that nobody could ask, or train."""
    path = "explorer.rollout_model.external_model_config.enable"
    if config.explorer.rollout_model.external_model_config.enable:
        yield Problem(
            path=config.source.written(path),
            message="a model behind an external API cannot be trained or evaluated.",
            remedy="Leave it out; auxiliary models may be behind one.",
            where=config.source.where(path),
            severity="not_yet",
        )
    for index, section in enumerate(config.explorer.auxiliary_models):
        api = section.external_model_config
        if api.enable and not (api.model_name or section.model_path):
            path = f"explorer.auxiliary_models.{index}.external_model_config.model_name"
            yield Problem(
                path=config.source.written(path),
                message="is missing: the API is asked for a model by its name.",
                remedy="Give the model's name at the API.",
                where=config.source.where(path),
                severity="error",
            )


def _missing_server(config: Config) -> Iterator[Problem]:
    explorer = config.explorer
    is_needed = explorer.rollout_model.enable_openai_api or explorer.auxiliary_models
    if config.mode == "serve":
        yield from _missing(config, "mode", ("starlette", "uvicorn"), extra="api")
    elif is_needed and config.mode != "train":
        path = "explorer.rollout_model.enable_openai_api"
        yield from _missing(config, path, ("starlette", "uvicorn", "openai"), extra="api")


def _missing_peft(config: Config) -> Iterator[Problem]:
    if config.model.lora_configs and config.has_trainer:
        yield from _missing(config, "model.lora_configs", ("peft",), extra="lora")


def _missing(
    config: Config, path: str, packages: Sequence[str], *, extra: str
) -> Iterator[Problem]:
    """Yield which packages the setting at ``path`` needs that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        what = "which is" if len(missing) == 1 else "which are"
        yield Problem(
            path=config.source.written(path),
            message=f"needs {', '.join(missing)}, {what} not installed.",
            remedy=f"Install it: pip install 'trinity-core[{extra}]'.",
            where=config.source.where(path),
            severity="error",
        )


def _templates_of_tasks(config: Config) -> Iterator[Problem]:
    """Yield the chat templates of task sets; only supervised rows have one of their own."""
    given = config.buffer.explorer_input
    for name in ("tasksets", "eval_tasksets"):
        for index, taskset in enumerate(getattr(given, name)):
            if taskset.format.chat_template is not None:
                path = f"buffer.explorer_input.{name}.{index}.format.chat_template"
                yield Problem(
                    path=config.source.written(path),
                    message="is not supported yet for tasks: it is read for supervised rows only.",
                    remedy="Set model.custom_chat_template, which holds for every prompt.",
                    where=config.source.where(path),
                    severity="not_yet",
                )


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
    return Problem(
        path=config.source.written(path),
        message=f"{shown} is not supported yet.",
        remedy=remedy,
        where=config.source.where(path),
        severity="not_yet",
    )
