"""``trinity plugins check``: metadata, API, imports, assets, conformance."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trinity.cli.columns import echo_columns
from trinity.cli.plugins_findings import finding_rows, skip_lines, slow_lines
from trinity.cli.plugins_show import record_named
from trinity.errors import PluginError, TrinityError
from trinity.extend import get_manager
from trinity.extend.known import distribution_of_tool, install_line

if TYPE_CHECKING:
    from trinity.extend import PluginManager, PluginRecord
    from trinity.extend.conformance.checks import Result

__all__ = ["check"]

CORE_GROUPS = {"static", "import", "component"}
RAY = "ray"  # the group of checks that need a Ray worker


def check(
    names: Annotated[list[str] | None, typer.Argument(help="Plugins; all without a name.")] = None,
    has_ray: Annotated[bool, typer.Option("--ray", help="Also in a Ray worker.")] = False,
    limit_s: Annotated[
        float | None,
        typer.Option("--limit", help="Seconds that one check of one component may take."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, schema 1.")] = False,
) -> None:
    """Check plugins; leaves with 1 if one is not as it must be."""
    manager = get_manager()
    manager.check_import_package()
    also = _groups_of_ray(manager) if has_ray else []
    records = [record_named(name, manager) for name in names or ()]
    records = records or [r for r in manager.records if r.state != "disabled"]
    with redirect_stdout(sys.stderr):  # what the checked parts print is no part of the answer
        results = [
            (record, result)
            for record in records
            for result in _results(record, manager, also, limit_s=limit_s)
        ]
    if as_json:
        rows = [{"plugin": record.name, **asdict(result)} for record, result in results]
        typer.echo(json.dumps({"schema": 1, "results": rows}, indent=2))
    else:
        _echo(results, records, manager)
    if any(result.is_bad for _, result in results):
        raise typer.Exit(1)


def _groups_of_ray(manager: PluginManager) -> list[str]:
    """Return the group of checks that ``--ray`` adds.

    Raises:
        PluginError: nothing that is installed has it.
    """
    from trinity.extend.conformance.checks import collect_checks

    if any(one.group == RAY for one in collect_checks(manager)):
        return [RAY]
    kit = distribution_of_tool("conformance kit")
    remedy = f" {install_line(kit)}." if kit else ""
    raise PluginError(f"the checks in a Ray worker belong to the conformance kit.{remedy}")


def _results(
    record: PluginRecord, manager: PluginManager, also: list[str], *, limit_s: float | None
) -> list[Result]:
    from trinity.extend.conformance.checks import run_checks

    is_shared = sum(other.name == record.name for other in manager.records) > 1
    name = record.distribution if is_shared and record.distribution else record.name
    checked = run_checks(name, manager, also=also, limit_s=limit_s)
    return [*checked, *_asset_results(record, manager)]


def _asset_results(record: PluginRecord, manager: PluginManager) -> list[Result]:
    from trinity.extend.assets import assets_of, missing_part
    from trinity.extend.conformance.checks import Result, Status

    results = _environment_results(record, manager)
    for asset in assets_of(record, manager):
        status, message = Status.PASS, ""
        try:
            message = missing_part(asset, record=record)
            status = Status.FAIL if message else status
        except TrinityError as error:
            status, message = Status.ERROR, str(error)
        remedy = f"Run: trinity plugins setup {record.name}"
        results.append(
            Result(
                id=f"assets.{asset.name}",
                component="",
                status=status,
                message=message,
                remedy=remedy,
            )
        )
    return results


def _environment_results(record: PluginRecord, manager: PluginManager) -> list[Result]:
    from trinity.extend.assets import environment_of
    from trinity.extend.conformance.checks import Result, Status
    from trinity.extend.environments import missing_environment, setup_line

    environment = environment_of(record, manager)
    if environment is None:
        return []
    message = missing_environment(environment)
    return [
        Result(
            id="assets.environment",
            component="",
            status=Status.FAIL if message else Status.PASS,
            message=message,
            remedy=setup_line(environment),
        )
    ]


def _echo(
    results: list[tuple[PluginRecord, Result]], records: list[PluginRecord], manager: PluginManager
) -> None:
    from trinity.extend.conformance.checks import collect_checks

    named = [(record.name, result) for record, result in results]
    findings = finding_rows(named)
    if findings:
        echo_columns(("PLUGIN", "STATUS", "CHECK", "COMPONENT", "FINDING"), findings)
        typer.echo("")
    for line in (*skip_lines(named), *slow_lines(named)):
        typer.echo(line)
    for record in records:
        counts = Counter(r.status.value for owner, r in results if owner is record)
        counted = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        typer.echo(f"{record.label}: {counted or 'nothing to check'}")
    kit = distribution_of_tool("conformance kit")
    if kit and {one.group for one in collect_checks(manager)} <= CORE_GROUPS:
        typer.echo(f"Only the core's checks ran. For the conformance kit: {install_line(kit)}")
