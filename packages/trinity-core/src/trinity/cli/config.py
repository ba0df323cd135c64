"""``trinity config``: look at a configuration without running it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from trinity.common.config import Config

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Check and show configurations.",
)

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a value. Repeatable."),
]
PluginDirs = Annotated[
    list[str] | None,
    typer.Option(metavar="DIR", help="Load the plugins of a folder. Repeatable."),
]


@app.command("check")
def check_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files.")],
    settings: Settings = None,
    plugin_dir: PluginDirs = None,
) -> None:
    """Resolve files for this machine and report problems; the exit code is 1 if there are any."""
    _use(plugin_dir)
    results = [_check(file, settings or []) for file in files]
    raise typer.Exit(0 if all(results) else 1)


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file.")],
    settings: Settings = None,
    plugin_dir: PluginDirs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every resolved value and its origin."""
    from trinity.common.config import load_config, probe, resolve_stages
    from trinity.common.config.preparation import run_manager

    _use(plugin_dir)
    config = load_config(file, overrides=settings or ())
    machine = probe(model_path=config.model.model_path)
    stages = resolve_stages(config, machine, manager=run_manager(config))
    if as_json:
        shown = [_as_json(stage) for stage in stages]
        typer.echo(json.dumps({"schema": 1, "stages": shown}, indent=2, default=str))
        return
    for stage in stages:
        typer.echo(f"# {stage.name}")
        for line in _aligned(stage):
            typer.echo(line)


@app.command("schema")
def schema(plugin_dir: PluginDirs = None) -> None:
    """Print the JSON schema for editors, with the names of installed components."""
    from trinity.common.config.schema import json_schema
    from trinity.extend import get_manager

    _use(plugin_dir)
    typer.echo(json.dumps(json_schema(get_manager()), indent=2))


def _use(plugin_dirs: list[str] | None) -> None:
    if plugin_dirs:
        from trinity.extend import get_manager, set_manager

        set_manager(get_manager().narrowed(plugin_dirs=plugin_dirs))


def _check(file: Path, settings: list[str]) -> bool:
    """Print what there is to say about one file; return whether it can be run."""
    from trinity.common.config import probe, resolve_stages
    from trinity.common.config.explanation import load_or_explain
    from trinity.common.config.preparation import run_manager

    try:
        config = load_or_explain(file, overrides=settings)
        manager = run_manager(config)
        machine = probe(model_path=config.model.model_path)
        stages = resolve_stages(config, machine, manager=manager)
    except TrinityError as error:
        typer.echo(str(error))
        return False
    lines: list[str] = []
    errors: list[str] = []
    for stage in stages:
        said, wrong = _findings(stage, machine=machine, manager=manager)
        said += [
            line for _, own in manager.call("trinity_config_notes", config=stage) for line in own
        ]
        lines += [f"stage {stage.name}:", *said] if len(stages) > 1 else said
        errors += wrong
    errors = list(dict.fromkeys(errors))
    count = f"{len(errors)} problem{'s'[: len(errors) != 1]}"
    typer.echo(f"{file}: {count if errors else 'ok'}")
    for line in [*lines, *errors]:
        typer.echo(f"  {line}")
    return not errors


def _findings(stage: Config, *, machine: object, manager: object) -> tuple[list[str], list[str]]:
    """Return the lines to read and the errors of one stage."""
    from trinity.common.config import check
    from trinity.common.config.arithmetic import arithmetic
    from trinity.common.config.problem import listed

    found = check(stage, machine, manager=manager)  # type: ignore[arg-type]
    notices = listed(p for p in found if p.severity == "notice")
    notes = [f"note: {note}" for note in [*stage.notes, *notices]]
    return [*arithmetic(stage), *notes], listed(p for p in found if p.severity != "notice")


def _as_json(stage: Config) -> dict[str, object]:
    from trinity.common.config.kept import shown_setting

    values = {
        path: {"value": shown_setting(stage, path, value), "origin": stage.origins[path]}
        for path, value in stage.flat().items()
    }
    return {"name": stage.name, "values": values, "notes": stage.notes}


def _aligned(stage: Config) -> list[str]:
    from trinity.common.config.kept import shown_setting

    values = stage.flat().items()
    texts = [(f"{path} = {shown_setting(stage, path, value)!r}", path) for path, value in values]
    width = min(70, max(len(text) for text, _ in texts))
    return [f"{text:<{width}}  # {stage.origins[path]}" for text, path in texts]
