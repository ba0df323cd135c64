"""``trinity plugins new``: write a plugin that builds, passes its conformance tests and trains."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated

import typer
from trinity import __version__
from trinity.errors import ConfigError, ConflictError, unknown_name
from trinity.extend import KINDS, PLUGIN_API, get_manager
from trinity.extend.known import known_distributions

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How a plugin of one kind is laid out."""

    module: str
    suffix: str  # of the class
    run: Mapping[str, str]  # what of RUN the part takes the place of; {name} is its own


#: what run.yaml holds where the part of a plugin takes no place
RUN = {
    "workflow_type": "simple_workflow",
    "reward_key": "      default_reward_fn_type: math_reward\n",
    "algorithm_type": "grpo",
    "algorithm_key": "",
    "buffer_key": "",
    "taskset_key": "",
    "sync_key": "",
    "sections": "",
}
_REPLAY = """\
  trainer_input:
    experience_buffer:
      name: replay
      storage_type: queue
      replay_buffer:
        enable: true
        priority_fn: {name}
"""
_OPERATOR = """\
data_processor:
  experience_pipeline:
    operators:
      - name: {name}
"""


_REWARD = """\
      default_reward_fn_type: {name}
"""
_ARGUMENTS = """\
      workflow_args:  # the fields of its class Arguments; the workflow computes the reward
        score: 1.0
"""
_STORAGE = """\
  trainer_input:
    experience_buffer:
      name: own
      storage_type: {name}
"""
_SELECTOR = """\
      data_selector:
        selector_type: {name}
"""
_ENGINE = """\
explorer:
  rollout_model:
    engine_type: {name}
"""
_SYNC = """\
  sync_method: {name}
"""
_PARSER = """\
explorer:
  rollout_model:
    tool_call_parser: {name}
"""
_TRAINER = {
    "algorithm_key": "  kl_loss_fn: none  # the trainer has no reference model\n",
    "sections": "trainer:\n  trainer_type: {name}\n",
}


def _shape(module: str, suffix: str, **run: str) -> Shape:
    return Shape(module=module, suffix=suffix, run=run)


def _of_algorithm(key: str, *, module: str, suffix: str) -> Shape:
    return _shape(module, suffix, algorithm_key=f"  {key}: {{name}}\n")


SHAPES = {
    "workflow": _shape("workflow", "Workflow", workflow_type="{name}", reward_key=_ARGUMENTS),
    "reward_fn": _shape("reward", "Reward", reward_key=_REWARD),
    "advantage_fn": _of_algorithm("advantage_fn", module="advantage", suffix="AdvantageFn"),
    "policy_loss_fn": _of_algorithm("policy_loss_fn", module="loss", suffix="PolicyLossFn"),
    "kl_fn": _of_algorithm("kl_loss_fn", module="kl", suffix="KLFn"),
    "entropy_loss_fn": _of_algorithm("entropy_loss_fn", module="entropy", suffix="EntropyLossFn"),
    "sample_strategy": _of_algorithm("sample_strategy", module="strategy", suffix="SampleStrategy"),
    "algorithm": _shape("algorithm", "Algorithm", algorithm_type="{name}"),
    "rollout_engine": _shape("engine", "Engine", sections=_ENGINE),
    "reply_parser": _shape("parser", "Parser", sections=_PARSER),
    "trainer": _shape("trainer", "Trainer", **_TRAINER),
    "sync_method": _shape("sync", "Sync", sync_key=_SYNC),
    "storage": _shape("storage", "Storage", buffer_key=_STORAGE),
    "priority_fn": _shape("priority", "Priority", buffer_key=_REPLAY),
    "experience_operator": _shape("operator", "Operator", sections=_OPERATOR),
    "task_selector": _shape("selector", "Selector", taskset_key=_SELECTOR),
    "advisor": _shape("advisor", "Advisor", sections="advisors:\n  {name}: warn\n"),
    "monitor": _shape("monitor", "Monitor", sections="monitor:\n  monitor_type: {name}\n"),
}


def new(
    name: Annotated[
        str, typer.Argument(help="Name of the plugin and its component, such as my_reward.")
    ],
    kind: Annotated[str, typer.Option(help=f"One of {', '.join(SHAPES)}.")],
    directory: Annotated[Path, typer.Option(help="Where to create its folder.")] = Path(),
) -> None:
    """Create a plugin with one component: package, test, README and an example run."""
    if kind not in SHAPES:
        raise typer.BadParameter(unknown_name("kind", kind, SHAPES), param_hint="--kind")
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        rule = "write lower-case letters and digits, joined by single - or _, as in my_reward"
        raise typer.BadParameter(f"{name!r} is not a valid plugin name: {rule}", param_hint="NAME")
    plugin = name.replace("-", "_").removeprefix("trinity_")
    root = directory / _distribution(plugin)
    _refuse_taken(plugin, kind, root)
    for path, text in files_of_a_plugin(plugin, kind).items():
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"{root / path} cannot be written: {error.strerror}. Choose another --directory."
            ) from error
        typer.echo(f"wrote {root / path}")
    typer.echo(f'next: python -m pip install -e "{root}[test]"')
    typer.echo(f"then: trinity plugins check {plugin}")


def files_of_a_plugin(plugin: str, kind: str) -> dict[str, str]:
    """Return the text of each file of a plugin of one part, by its path."""
    values = _values(plugin, kind)
    source = f"src/{values['package']}"
    made_of = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{source}/__init__.py": "init.py",
        f"{source}/plugin.py": "plugin.py",
        f"{source}/{values['module']}.py": f"{values['kind']}.py",
        "tests/test_plugin.py": "test_plugin.py",
        "run.yaml": "run.yaml",
        "tasks.jsonl": "tasks.jsonl",
    }
    return {
        path: Template((TEMPLATES / f"{name}.tmpl").read_text("utf-8")).substitute(values)
        for path, name in made_of.items()
    }


def _refuse_taken(plugin: str, kind: str, root: Path) -> None:
    if root.exists():
        raise ConfigError(f"{root} exists. Choose another name or --directory.")
    manager = get_manager()
    if plugin in manager.names(kind):
        origin = manager.find(kind, plugin).origin
        raise ConflictError(f"{kind} {plugin!r} already exists in {origin}. Choose another name.")
    for record in manager.unloaded_records():
        if plugin == record.name or root.name == record.distribution:
            raise ConflictError(f"plugin {record.label} is installed. Choose another name.")
    if root.name in known_distributions():
        raise ConflictError(f"{root.name} is a package of Trinity. Choose another name.")


def _distribution(plugin: str) -> str:
    return "trinity-" + plugin.replace("_", "-")


def _values(plugin: str, kind: str) -> dict[str, str]:
    shape = SHAPES[kind]
    camel = "".join(part.capitalize() for part in plugin.split("_"))
    distribution = _distribution(plugin)
    major, minor = __version__.split(".")[:2]
    return RUN | {
        "plugin": plugin,
        "component": plugin,
        "kind": kind,
        "distribution": distribution,
        "package": distribution.replace("-", "_"),
        "module": shape.module,
        "class_name": camel.removesuffix(shape.suffix) + shape.suffix,
        "hook": KINDS[kind].hook,
        "plugin_api": str(PLUGIN_API),
        "core_range": f">={major}.{minor},<{major}.{int(minor) + 1}",
        **{key: value.format(name=plugin) for key, value in shape.run.items()},
    }
