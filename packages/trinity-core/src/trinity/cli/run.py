"""``trinity run``: run a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.runtime.record.result import closing_lines
from trinity.starting import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trinity.common.config import Config
    from trinity.runtime.record.result import RunResult

app = typer.Typer(add_completion=False)


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The YAML file of the run.")],
    local: Annotated[
        bool, typer.Option("--local", help="Run all components in this process, without Ray.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a value, as in --set buffer.batch_size=8. Repeatable."),
    ] = None,
    plugin_dir: Annotated[
        list[Path] | None,
        typer.Option("--plugin-dir", help="Load the plugins of a folder. Repeatable."),
    ] = None,
    restart: Annotated[
        int, typer.Option(min=0, help="Restart up to N times after a kill, or if Ray is lost.")
    ] = 0,
) -> None:
    """Run a configuration from the first task to the last checkpoint.

    Trainer, engines and rollout workers run as Ray actors: in the cluster of RAY_ADDRESS,
    cluster.ray_address or `ray start`, else in a local Ray that ends with the run.
    """
    tell(restart=restart)
    typer.echo(f"reading {config}")  # before what takes seconds to import
    from trinity.runtime.interrupt import Interrupt

    with Interrupt(typer.echo, may_leave=True):  # until the run itself hears
        given, run_config = _loaded(config, settings=settings or (), plugin_dirs=plugin_dir or ())
    # Paths are shown as the file gives them: relative ones count from here.
    here = "" if Path(given.checkpoint_root_dir).is_absolute() else f"{Path.cwd()}/"
    result = run_config(given, local=local)
    for line in closing_lines(result):
        typer.echo(line.replace(here, ""))
    raise typer.Exit(result.exit_code)


def _loaded(
    file: Path, *, settings: Sequence[str], plugin_dirs: Sequence[Path]
) -> tuple[Config, Callable[..., RunResult]]:
    """Return the configuration, and what runs it."""
    from trinity.runtime.preflight import set_threads

    set_threads()
    from trinity.common.config.explanation import load_or_explain
    from trinity.extend import get_manager, set_manager

    set_manager(get_manager().narrowed(plugin_dirs=plugin_dirs))
    given = load_or_explain(file, overrides=settings)
    typer.echo(f"run {given.name} (mode {given.mode}): loading its parts")
    from trinity.runtime.gc_paused import gc_paused

    with gc_paused():
        from trinity.runtime.run import run as run_config  # torch, which takes seconds

    return given, run_config
