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
from trinity.errors import PluginError
from trinity.extend import get_manager
from trinity.extend.known import distribution_of_tool, install_line

if TYPE_CHECKING:
    from trinity.extend import PluginManager, PluginRecord
    from trinity.extend.conformance.checks import Result

CORE_GROUPS = {"static", "import", "component"}
RAY = "ray"  # the group of checks that need a Ray worker


def check(
    names: Annotated[list[str] | None, typer.Argument(help="Plugins; default: all.")] = None,
    has_ray: Annotated[bool, typer.Option("--ray", help="Also check in a Ray worker.")] = False,
    limit_s: Annotated[
        float | None,
        typer.Option("--limit", help="Timeout of one check of one component, in seconds."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, schema 1.")] = False,
) -> None:
    """Run the conformance checks of plugins; the exit code is 1 if a check fails.

    If a plugin misses data, an environment or a package, its checks fail if you name the plugin,
    and are skipped if you check all plugins.
    """
    manager = get_manager()
    manager.check_import_package()
    also = _groups_of_ray(manager) if has_ray else []
    records = [record_named(name, manager) for name in names or ()]
    records = records or [r for r in manager.records if r.state != "disabled"]
    with redirect_stdout(sys.stderr):  # what the checked parts print is no part of the answer
        results = [
            (record, result)
            for record in records
            for result in _results(record, manager, also, limit_s=limit_s, is_named=bool(names))
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
    record: PluginRecord,
    manager: PluginManager,
    also: list[str],
    *,
    limit_s: float | None,
    is_named: bool,
) -> list[Result]:
    from trinity.extend.conformance.checks import run_checks

    is_shared = sum(other.name == record.name for other in manager.records) > 1
    name = record.distribution if is_shared and record.distribution else record.name
    checked = run_checks(name, manager, also=also, limit_s=limit_s)
    return [*checked, *_need_results(record, manager, is_named=is_named)]


def _need_results(record: PluginRecord, manager: PluginManager, *, is_named: bool) -> list[Result]:
    """Return a result for each thing that the plugin needs.

    Who names a plugin asks whether it can be used: what is missing fails. Who names none asks
    whether what is installed works: what nobody has fetched yet is skipped.
    """
    from trinity.extend.assets import needs_of
    from trinity.extend.conformance.checks import Result, Status

    results = []
    for need in needs_of(record, manager):
        is_skipped = bool(need.missing) and not (is_named or need.is_spoilt)
        failed = Status.FAIL if need.missing else Status.PASS
        results.append(
            Result(
                id=f"assets.{need.name}",
                component="",
                status=Status.SKIP if is_skipped else failed,
                message=need.sentence if is_skipped else need.missing,
                remedy=need.remedy,
            )
        )
    return results


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
