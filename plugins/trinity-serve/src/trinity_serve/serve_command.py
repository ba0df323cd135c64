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
        typer.Option("--plugin-dir", help="Load the plugins of a folder. Repeatable."),
    ] = None,
) -> None:
    """Serve the model by HTTP to agents that run elsewhere, and train on their rewards.

    Listens at explorer.listen_address and explorer.proxy_port until Ctrl-C. With a section
    `trainer`, trains on committed rollouts, else stores them. Clients need a key of the
    environment variable TRINITY_SERVE_KEYS, or the key that the command prints.
    """
    run(
        config,
        local=True,
        settings=["mode=serve", *(settings or ())],
        plugin_dir=plugin_dir,
    )
