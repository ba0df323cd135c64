"""``trinity serve``: answer agents that run elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trinity.cli.run import run


def serve(
    config: Annotated[Path, typer.Option("--config", "-c", help="The YAML file of the service.")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Set a value, as in --set explorer.proxy_port=8011. Repeatable."
        ),
    ] = None,
    plugin_dir: Annotated[
        list[Path] | None,
        typer.Option("--plugin-dir", help="A folder of modules that hold plugins. Repeatable."),
    ] = None,
) -> None:
    """Answer agents that run elsewhere, take their rewards, and train on them.

    It serves the model of the file at explorer.listen_address and explorer.proxy_port until Ctrl-C;
    with a section `trainer` it trains on what is committed, else it stores that. Clients show a key
    of the environment variable TRINITY_SERVE_KEYS, or the one that is printed.
    """
    run(
        config,
        local=True,
        settings=["mode=serve", *(settings or ())],
        plugin_dir=plugin_dir,
    )
