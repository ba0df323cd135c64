"""``trinity plugins check``: metadata, API, imports, assets, conformance; findings by cause."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from trinity.cli.output import echo_columns
from trinity.extend import get_manager
from trinity.extend.ownership import refuse_any_other_owner

from trinity_testing.check import Result, Status
from trinity_testing.needs import needs_of
from trinity_testing.planning import run_checks
from trinity_testing.show_command import record_named

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from trinity.extend import PluginManager, PluginRecord

FOUND = {Status.FAIL, Status.ERROR, Status.XPASS}
SLOW_S = 5.0
SHOWN_NAMES, SHOWN_SLOW = 3, 5

Named = tuple[str, "Result"]  # the plugin's name, and what a check of it came to
K = TypeVar("K", bound="Hashable")


def finding_rows(results: Iterable[Named]) -> list[tuple[str, str, str, str, str]]:
    """Return a row for each cause: plugin, status, checks, component, what to do.

    Checks of one component that say the same have met the same thing.
    """
    found = [named for named in results if named[1].status in FOUND]
    causes = _grouped(found, lambda plugin, r: (plugin, r.status.value, r.component, r.message))
    return [
        (plugin, status, _listed([result.id for _, result in alike]), component, _told(alike))
        for (plugin, status, component, _), alike in causes.items()
    ]


def skip_lines(results: Iterable[Named]) -> list[str]:
    """Return a line for each reason why checks were skipped, and which."""
    skipped = [named for named in results if named[1].status is Status.SKIP]
    reasons = _grouped(skipped, lambda plugin, r: (plugin, r.message))
    lines = []
    for (plugin, reason), alike in reasons.items():
        checks = list(dict.fromkeys(result.id for _, result in alike))
        parts = list(dict.fromkeys(r.component for _, r in alike if r.component))
        where = f" of {_listed(parts)}" if parts else ""
        lines.append(f"skipped in {plugin}: {_listed(checks)}{where}: {reason}")
    return [*lines, ""] if lines else []


def slow_lines(results: Iterable[Named]) -> list[str]:
    """Return a line that names the checks that took longest, if some took long."""
    slow = sorted(
        (result for _, result in results if result.seconds >= SLOW_S),
        key=lambda result: -result.seconds,
    )
    if not slow:
        return []
    shown = [f"{_label(result)} {result.seconds:.0f} s" for result in slow[:SHOWN_SLOW]]
    return [f"slow: {', '.join(shown)}", ""]


def _grouped(results: Iterable[Named], key: Callable[[str, Result], K]) -> dict[K, list[Named]]:
    groups: dict[K, list[Named]] = {}
    for plugin, result in results:
        groups.setdefault(key(plugin, result), []).append((plugin, result))
    return groups


def _told(alike: Sequence[Named]) -> str:
    """Return the finding, what to do about it, and whether it is a warning."""
    remedies = dict.fromkeys(result.remedy for _, result in alike if result.remedy)
    first = alike[0][1]
    remedy = f" {next(iter(remedies))}" if remedies else ""
    severity = "" if any(result.is_bad for _, result in alike) else " (a warning)"
    return f"{first.message.rstrip('.')}.{remedy}{severity}"


def _label(result: Result) -> str:
    return f"{result.id}[{result.component}]" if result.component else result.id


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_NAMES])
    num_others = len(names) - SHOWN_NAMES
    return f"{shown} and {num_others} more" if num_others > 0 else shown


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
    refuse_any_other_owner()
    records = [record_named(name, manager) for name in names or ()]
    records = records or [r for r in manager.records if r.state != "disabled"]
    also, is_named = ["ray"] if has_ray else [], bool(names)
    with redirect_stdout(sys.stderr):  # what the checked parts print is no part of the answer
        results = [
            (record, result)
            for record in records
            for result in _results(record, manager, also=also, limit_s=limit_s, is_named=is_named)
        ]
    if as_json:
        rows = [{"plugin": record.name, **asdict(result)} for record, result in results]
        typer.echo(json.dumps({"schema": 1, "results": rows}, indent=2))
    else:
        _echo(results, records)
    if any(result.is_bad for _, result in results):
        raise typer.Exit(1)


def _results(
    record: PluginRecord,
    manager: PluginManager,
    *,
    also: list[str],
    limit_s: float | None,
    is_named: bool,
) -> list[Result]:
    is_shared = sum(other.name == record.name for other in manager.records) > 1
    name = record.distribution if is_shared and record.distribution else record.name
    checked = run_checks(name, manager, also=also, limit_s=limit_s)
    return [*checked, *_need_results(record, manager, is_named=is_named)]


def _need_results(record: PluginRecord, manager: PluginManager, *, is_named: bool) -> list[Result]:
    """Return a result for each thing that the plugin needs.

    Who names a plugin asks whether it can be used: what is missing fails. Who names none asks
    whether what is installed works: what nobody has fetched yet is skipped.
    """
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


def _echo(results: list[tuple[PluginRecord, Result]], records: list[PluginRecord]) -> None:
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
