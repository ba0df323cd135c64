"""``trinity plugins new``: write a plugin that builds, passes its conformance tests and trains."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from trinity import __version__
from trinity.cli.plugin_shapes import RUN, SHAPES
from trinity.errors import ConfigError, ConflictError, unknown_name
from trinity.extend import KINDS, PLUGIN_API, get_manager
from trinity.extend.known import known_distributions

TEMPLATES = Path(__file__).with_name("templates")


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
    has_kit = find_spec("trinity_testing") is not None
    typer.echo(f'next: python -m pip install -e "{root}{"[test]" if has_kit else ""}"')
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
