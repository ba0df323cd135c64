"""``trinity plugins setup``: fetch and verify what a plugin needs beside Trinity's packages."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from trinity.errors import PluginError, TrinityError, UnknownComponentError
from trinity.extend import get_manager
from trinity.extend.assets import assets_of, fetch, missing_part
from trinity.extend.environments import (
    environment_folder,
    missing_environment,
    setup_line,
)
from typer.core import TyperCommand

from trinity_testing.needs import environment_of
from trinity_testing.setup_options import options_of, parameter_of
from trinity_testing.show_command import record_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity.extend import EnvironmentSpec, PluginManager, PluginRecord
    from trinity.extend.component import AssetSpec

_WORDS = "trinity.setup.words"


class SetupCommand(TyperCommand):
    """The command, whose help lists the options of the plugin that is named beside it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: a click context
        """Keep the words for the help, which is shown before the plugin's name is read."""
        ctx.meta[_WORDS] = list(args)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # Any: click's
        """Write the options of the plugin, if one is named."""
        super().format_epilog(ctx, formatter)
        name = next((word for word in ctx.meta.get(_WORDS, ()) if not word.startswith("-")), "")
        if not name:
            return
        try:
            options = _options_of_all(name)
        except TrinityError as error:
            options = {"": str(error)}
        with formatter.section(f"Options of {name}"):
            formatter.write_dl(list(options.items()) or [("(none)", "")])


#: of the command, for the command line: a plugin's own options are read by ``setup``
SETTINGS: dict[str, Any] = {  # Any: typer's
    "cls": SetupCommand,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}


def setup(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The plugin or its distribution.")],
    is_environment: Annotated[
        bool,
        typer.Option("--environment", help="Create the plugin's own virtual environment instead."),
    ] = False,
    python: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="The Python for the virtual environment.", show_default=False
        ),
    ] = "",
) -> None:
    """Fetch and verify the plugin's data and programs, or create its virtual environment.

    A plugin may add options: see trinity plugins setup NAME --help.
    """
    manager = get_manager()
    record = record_named(name, manager)
    given = _given(ctx.args)
    if is_environment:
        _refuse_unknown(given, known={}, record=record)
        _make_environment(record, manager, python=python or None)
        return
    if python:
        raise typer.BadParameter("--python goes with --environment.", param_hint="--python")
    assets, environment = assets_of(record, manager), environment_of(record, manager)
    if not assets and environment is None:
        typer.echo(f"{record.label} needs nothing beside its Python packages.")
    _refuse_unknown(given, known=_options_of_all(name) if given else {}, record=record)
    by_hand = " It cannot be fetched for you." if environment is None else ""
    missing = [
        asset.name
        for asset in assets
        if not _is_ready(asset, record=record, given=given, by_hand=by_hand)
    ]
    is_made = environment is None or _is_made(environment)
    if missing or not is_made:
        raise typer.Exit(1)


def _make_environment(record: PluginRecord, manager: PluginManager, *, python: str | None) -> None:
    """Make the plugin's environment, with uv where that is installed.

    Raises:
        PluginError: it has none, or it cannot be made.
    """
    from trinity_testing.new_environment import make_environment

    environment = environment_of(record, manager)
    if environment is None:
        raise PluginError(
            f"{record.label} has no environment of its own: it runs in Trinity's. For what else it "
            f"needs, run: trinity plugins setup {record.name}"
        )
    make_environment(environment, say=_say, python=python, uv=shutil.which("uv"))


def _say(line: str) -> None:
    typer.echo(line)
    sys.stdout.flush()  # before what is run speaks for itself


def _is_made(environment: EnvironmentSpec) -> bool:
    """Say how the plugin's environment is; return whether it is there, or need not be."""
    missing = missing_environment(environment)
    holds = ""
    if environment.as_here:
        from trinity_testing.new_environment import program_in

        holds = f", with Trinity: {program_in(environment_folder(environment))}"
    said = f"missing: {missing}. {setup_line(environment)}" if missing else f"ok{holds}"
    typer.echo(f"environment {environment.name}: {said}")
    return not missing or bool(environment.as_here)  # the plugin works without one with Trinity


def _is_ready(
    asset: AssetSpec, *, record: PluginRecord, given: Mapping[str, str], by_hand: str
) -> bool:
    """Fetch what is missing, or what an option asks for; return whether it is there now."""
    own = options_of(asset, record=record) if given else {}
    options = {parameter_of(option): text for option, text in given.items() if option in own}
    missing = missing_part(asset, record=record, options=options)
    if asset.fetch and (missing or options):
        asked = " ".join(f"{option} {text}" for option, text in given.items() if option in own)
        how = f"setting up with {asked}" if asked else f"fetching {asset.what} ({asset.size})"
        typer.echo(f"{asset.name}: {how}")
        fetch(asset, record=record, options=options)
        missing = missing_part(asset, record=record, options=options)
    by_hand = "" if asset.fetch else by_hand
    typer.echo(f"{asset.name}: " + (f"missing: {missing}.{by_hand}" if missing else "ok"))
    return not missing


def _options_of_all(name: str) -> dict[str, str]:
    manager = get_manager()
    record = record_named(name, manager)
    options: dict[str, str] = {}
    for asset in assets_of(record, manager):
        options |= options_of(asset, record=record)
    return options


def _given(words: Sequence[str]) -> dict[str, str]:
    """Return ``--option`` -> its text, of ``--option text`` and ``--option=text``.

    Raises:
        typer.BadParameter: a word is no option, or an option has no text.
    """
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        option, has_text, text = rest.pop(0).partition("=")
        if not option.startswith("--"):
            raise typer.BadParameter(f"{option!r} is no option. Write --NAME VALUE.")
        if not has_text:
            if not rest or rest[0].startswith("--"):
                raise typer.BadParameter(f"{option} lacks its value. Write {option} VALUE.")
            text = rest.pop(0)
        given[option] = text
    return given


def _refuse_unknown(
    given: Mapping[str, str], *, known: Mapping[str, str], record: PluginRecord
) -> None:
    unknown = [option for option in given if option not in known]
    if unknown:
        there_are = f"It has: {', '.join(known)}." if known else "It has none."
        raise UnknownComponentError(
            f"the setup of plugin {record.label} has no option {', '.join(unknown)}. {there_are}"
        )
