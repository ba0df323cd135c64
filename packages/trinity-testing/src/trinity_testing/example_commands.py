"""``trinity examples``: put an example of ours into the working directory, ready to be run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from trinity.errors import ConfigError, unknown_name

__all__ = ["app"]

HERE = Path(__file__).with_name("examples")
TARGET = Path("examples")  # where the pages and the configurations say that an example is
FIRST = re.compile(r"^# First: python examples/(\w+)/(\w+\.py)$", re.MULTILINE)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@app.callback()
def examples() -> None:
    """List and copy examples that train on a laptop; no clone or download is needed."""


@app.command("list")
def list_examples() -> None:
    """List the examples."""
    for name in _names():
        title = (HERE / name / "README.md").read_text("utf-8").partition("\n")[0]
        typer.echo(f"{name:15}{title.removeprefix('#').strip()}")


@app.command()
def copy(
    name: Annotated[str, typer.Argument(help="Name of an example; see trinity examples list.")],
    prepare: Annotated[  # noqa: FBT002 -- typer makes an option of it
        bool, typer.Option(help="Also create its model and data, if it has a script for them.")
    ] = True,
) -> None:
    """Copy an example to examples/NAME, create its model and data, print the command to run."""
    if name not in _names():
        raise typer.BadParameter(unknown_name("example", name, _names()), param_hint="NAME")
    configs = sorted((HERE / name).glob("*.yaml"))
    scripts = sorted(set(FIRST.findall(configs[0].read_text("utf-8"))))
    for folder in sorted({name, *(owner for owner, _ in scripts)}):
        _copy_folder(folder)
    for owner, script in scripts:
        command = [sys.executable, str(TARGET / owner / script)]
        if not prepare:
            typer.echo(f"first: python {command[1]}")
        elif subprocess.run(command, check=False).returncode:
            raise ConfigError(f"{command[1]} failed; see its message above.")
    parts = TARGET / name / "parts"
    own = f" --plugin-dir {parts}" if parts.is_dir() else ""
    typer.echo(f"next: trinity run --local --config {TARGET / name / configs[0].name}{own}")


def _names() -> list[str]:
    return sorted(path.name for path in HERE.iterdir() if (path / "README.md").exists())


def _copy_folder(name: str) -> None:
    """Copy a folder; what stands there and differs is the user's, and stays.

    Raises:
        ConfigError: a file of that name differs.
    """
    for source in sorted((HERE / name).rglob("*")):
        if source.is_dir() or "__pycache__" in source.parts:
            continue
        target = TARGET / name / source.relative_to(HERE / name)
        if target.exists():
            if target.read_bytes() != source.read_bytes():
                raise ConfigError(
                    f"{target} exists and differs. Move it away, or call from another folder."
                )
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        typer.echo(f"wrote {target}")
