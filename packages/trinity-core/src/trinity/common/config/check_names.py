"""Are the named components there, and do they take the arguments?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trinity.common.config.check_args import argument_problems
from trinity.common.config.parts import named_failure
from trinity.common.config.paths import value_at
from trinity.errors import TrinityError, did_you_mean
from trinity.extend.component import imported_target
from trinity.extend.failure import described_failure
from trinity.extend.importing import importing_as
from trinity.extend.kind import PLUGIN_MODE
from trinity.extend.kinds import KINDS
from trinity.extend.known import install_line
from trinity.extend.requirements import CORE, canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.common.config.buffer import TasksetConfig
    from trinity.common.config.config import Config
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem
    from trinity.extend import Component, Setting

_INPUT = "buffer.explorer_input"


@dataclass(frozen=True, kw_only=True)
class NamedPart:
    """One component that a configuration names."""

    path: str
    kind: str
    name: Any
    args_path: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


def name_problems(config: Config, parts: NamedParts) -> list[Problem]:
    """Return a problem for each name that no plugin gives and each argument that does not fit."""
    problems: list[Problem] = []
    for part in named_parts(config):
        if not _is_guess(config, part, parts):
            problems += _problems_of_part(config, part, parts)
    problems += _missing_rewards(config, parts)
    problems += _missing_history(config, parts)
    problems += _repeated_evaluations(config)
    problems += [
        problem_at(config, "plugins.require", line.removeprefix("plugins.require: "))
        for line in parts.manager.missing_requirements(config.plugins.require)
    ]
    return [*problems, *_switches_of_nothing(config, parts)]


def _problems_of_part(config: Config, part: NamedPart, parts: NamedParts) -> Iterator[Problem]:
    try:
        loaded = parts.manager.find(part.kind, part.name)
        if not part.args_path and is_own(loaded):
            return  # imported when the run starts: an engine takes seconds
        target = loaded.load()
    except TrinityError as error:
        said = str(error)
        said += "" if "pip install" in said else _uninstalled(config, parts)
        yield problem_at(config, part.path, said)
        return
    is_trusted = loaded.held is not None and _can_be_asked(part.kind, target)
    kind = KINDS[part.kind]
    wrong = kind.unbuildable(target) if is_trusted else kind.problem_of(target)
    if wrong is not None:
        message = f"{part.name} ({loaded.origin}) is no {part.kind}: {wrong[0]}. {wrong[1]}"
        yield problem_at(config, part.path, message)
        return
    older = None if is_trusted else kind.notice_of(target)
    if older is not None:
        message = f"{part.kind} {part.name}: {older[0]}. {older[1]}"
        yield replace(problem_at(config, part.path, message), severity="notice")
    if part.args_path:
        found = list(argument_problems(loaded, target, part.args, kind.provided))
        if not found and kind.is_pure:
            found = _refusal(target, part.args)
        for path, message in found:
            yield problem_at(config, f"{part.args_path}.{path}".rstrip("."), message)


def _uninstalled(config: Config, parts: NamedParts) -> str:
    """Return what an earlier start of the run had and is gone, and how to install it."""
    root = Path(config.checkpoint_root_dir or "checkpoints")
    file = root.joinpath(config.project, config.group, config.name, "plugins.json")
    here = {None, *(one.record.distribution for one in parts.manager.found)}
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        gone = [row for row in rows if row["distribution"] not in here]
        pins = {f"{row['distribution']}=={row['version']}": row["path"] for row in gone}
    except (OSError, ValueError, TypeError, KeyError):
        return ""  # there was none, or its file says nothing
    line = install_line(" ".join(f"-e {path}" if path else pin for pin, path in pins.items()))
    had = f" This run was started with {', '.join(pins)}, which is not installed now. Run: {line}"
    return had if gone else ""


def problems_of_parts(config: Config, parts: NamedParts) -> Iterator[Problem]:
    """Yield what the components in use say against the configuration (``ComponentSpec.checks``)."""
    found = (parts.find(part.kind, part.name) for part in named_parts(config))
    for component in dict.fromkeys(one for one in found if one is not None and one.spec.checks):
        with (
            named_failure(f"{component.spec.checks} of {component.kind} {component.name}"),
            importing_as(component.origin.key),
        ):
            check: Any = imported_target(str(component.spec.checks))
            yield from list(check(config))


def is_own(component: Component) -> bool:
    """Return whether the core itself brings a component, whose classes its tests look at."""
    return component.origin.distribution == CORE and component.held is None


def _can_be_asked(kind: str, target: Any) -> bool:
    """Return whether a class in hand, which need not have the base, has what is read of it."""
    if kind == "sample_strategy":
        return not KINDS[kind].missing_from(target)
    return kind != "workflow" or hasattr(target, "can_repeat")


def _refusal(target: Any, args: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the constructor itself says against its arguments, at no path below them."""
    try:
        target(**args)
    except ValueError as error:
        return [("", f"{str(error).rstrip('.')}.")]
    except Exception as error:  # noqa: BLE001 - the boundary around a plugin's code
        name = target.__name__
        return [
            ("", f"{name} cannot be built with them: {described_failure(error)}. Correct them.")
        ]
    return []


def _switches_of_nothing(config: Config, parts: NamedParts) -> Iterator[Problem]:
    """Yield a notice for each plugin that ``plugins.*`` names and that is not installed."""
    chosen = config.plugins
    named = [(f"plugins.{key}", n) for key in ("allow", "disabled") for n in getattr(chosen, key)]
    named += [(f"plugins.prefer.{key}", name) for key, name in chosen.prefer.items()]
    records = [plugin.record for plugin in parts.manager.found]
    known = sorted({name for r in records for name in (r.name, r.distribution) if name})
    for path, name in named:
        if canonical(name) not in map(canonical, known):
            what = f"no plugin named {name!r} is installed.{did_you_mean(name, known)}"
            yield replace(problem_at(config, path, what), severity="notice")


def _repeated_evaluations(config: Config) -> Iterator[Problem]:
    """Yield the evaluation tasksets that have the name of another, whose metrics would be one."""
    names = [taskset.name for taskset in config.buffer.explorer_input.eval_tasksets]
    for number, name in enumerate(names):
        if name in names[:number]:
            what = f"{name!r} is used twice, and metrics are named eval/<name>/... "
            path = f"{_INPUT}.eval_tasksets[{number}].name"
            yield problem_at(config, path, f"{what}Use another name.")


def _missing_rewards(config: Config, parts: NamedParts) -> Iterator[Problem]:
    """Yield each set whose workflow needs a reward function and gets none."""
    for path, taskset in tasksets_in_use(config):
        loaded = parts.load("workflow", taskset.default_workflow_type)
        if taskset.default_reward_fn_type or taskset.format.reward_fn_key:
            continue
        if getattr(loaded, "needs_reward_fn", False):
            what = f"is missing: {taskset.default_workflow_type} has no reward function of its own."
            remedy = "Name one, such as math_reward."
            yield problem_at(config, f"{path}.default_reward_fn_type", f"{what} {remedy}")


def _missing_history(config: Config, parts: NamedParts) -> Iterator[Problem]:
    """Yield that the calls of a model are not recorded, if a workflow needs them."""
    names = [taskset.default_workflow_type for _, taskset in tasksets_in_use(config)]
    needy = [n for n in names if getattr(parts.load("workflow", n), "needs_history", False)]
    if needy and not config.explorer.rollout_model.enable_history:
        message = f"is false, but workflow {needy[0]} builds its experiences from recorded model "
        message += "calls. Set it to true."
        yield problem_at(config, "explorer.rollout_model.enable_history", message)


def tasksets_in_use(config: Config) -> list[tuple[str, TasksetConfig]]:
    """Return the tasksets that the mode runs, with their paths."""
    uses = {
        "tasksets": config.mode in {"both", "explore"},
        "eval_tasksets": config.mode in {"both", "explore", "bench"},
    }
    inputs = config.buffer.explorer_input
    return [
        (f"{_INPUT}.{name}.{index}", taskset)
        for name, is_used in uses.items()
        if is_used
        for index, taskset in enumerate(getattr(inputs, name))
    ]


def _is_guess(config: Config, part: NamedPart, parts: NamedParts) -> bool:
    """Return whether a part stands in for what an unknown algorithm would have named."""
    is_fallback = config.origins.get(part.path) == "default" and part.path.startswith("algorithm.")
    return is_fallback and parts.find("algorithm", config.algorithm.algorithm_type) is None


def named_parts(config: Config) -> Iterator[NamedPart]:
    """Yield the components that a run of this mode uses, the algorithm first."""
    for kind in sorted(KINDS.values(), key=lambda kind: kind.name != "algorithm"):
        for setting in kind.settings:
            is_used = not setting.switch or value_at(config, setting.switch)
            mode = PLUGIN_MODE if config.is_plugin_mode else config.mode
            if mode in setting.modes and is_used:
                yield from _parts_at(config, kind.name, setting)


def _parts_at(config: Config, kind: str, setting: Setting) -> Iterator[NamedPart]:
    """Yield the component that stands at a setting, or in each entry of its list."""
    if setting.is_key:
        section = setting.path.removesuffix(".*")
        for name in value_at(config, section):
            yield NamedPart(path=f"{section}.{name}", kind=kind, name=name)
        return
    for path, args_path in _filled_in(config, setting.path, setting.args):
        name = value_at(config, path)
        if setting.means:
            name = setting.means if name else None
        if name is None or (name == "" and setting.may_be_empty):
            continue
        args = (value_at(config, args_path) if args_path else None) or {}
        yield NamedPart(path=path, kind=kind, name=name, args_path=args_path, args=args)


def _filled_in(config: Config, *paths: str) -> list[tuple[str, ...]]:
    """Return the paths once for each entry of the list or mapping that their star stands for."""
    outer, star, _ = paths[0].partition(".*.")
    if not star:
        return [paths]
    entries = value_at(config, outer) or ()
    keys = entries if isinstance(entries, dict) else range(len(entries))
    return [tuple(path.replace("*", str(key)) for path in paths) for key in keys]


def problem_at(config: Config, path: str, message: str) -> Problem:
    """Return the problem at the place where the value was written: it may come from elsewhere."""
    origin = config.origins.get(path, "")
    return config.source.problem(origin if config.source.where(origin) else path, message)


def monitor_problems(config: Config) -> Iterator[Problem]:
    """Yield what is wrong with ``monitor`` beyond names and arguments."""
    own = config.monitor
    seen = {"jsonl": "always written", own.monitor_type: "monitor.monitor_type"}
    for index, one in enumerate(own.also):
        path = f"monitor.also.{index}.monitor_type"
        if not one.monitor_type:
            yield config.source.problem(path, "is missing.", "Name the monitor.")
        elif one.monitor_type in seen:
            message = f"{one.monitor_type} is already there: {seen[one.monitor_type]}."
            yield config.source.problem(path, message, "Leave the entry out.")
        seen.setdefault(one.monitor_type, f"monitor.also.{index}")
    if own.sample_interval and config.has_trainer and not config.buffer.record_samples:
        what = f"is {own.sample_interval}, but monitors show recorded samples, and "
        what += "buffer.record_samples is false."
        remedy = "Set buffer.record_samples: true, or leave sample_interval out."
        yield config.source.problem("monitor.sample_interval", what, remedy)
