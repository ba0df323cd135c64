"""Which checks a plugin must pass, and how they are run.

A check looks at one plugin or at one component and returns a :class:`Finding`, or None if all is
well. ``static.*``, ``import.*`` and ``component.*`` hold for every plugin; the hook
``trinity_conformance_checks`` adds groups: ``{"reward_fn": "package.module:checks"}``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.errors import UnknownComponentError, unknown_name

from trinity_testing.bench import Bench
from trinity_testing.check import Arguments, Case, Check, CheckContext, Finding, Result
from trinity_testing.needs import Need, needs_of

if TYPE_CHECKING:
    from trinity.extend.component import Component
    from trinity.extend.manager import PluginManager, PluginRecord

GENERAL_GROUPS = {
    "static": "trinity_testing.checks.static:checks",
    "import": "trinity_testing.checks.imports:checks",
    "component": "trinity_testing.checks.components:checks",
}
EVERY_KIND = frozenset({"*"})


def run_checks(  # noqa: PLR0913 - the options of a plan
    plugin_name: str,
    manager: PluginManager,
    *,
    ids: Iterable[str] | None = None,
    also: Iterable[str] = (),
    args: Mapping[str, Arguments | Sequence[Arguments]] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> list[Result]:
    """Return the results of all checks of one plugin, named by its name or its distribution.

    Args:
        plugin_name: the plugin.
        manager: where it is installed.
        ids: check ids or groups (``reward_fn``); None: all but those that are opt-in.
        also: ids or groups beside these; ``ray`` is opt-in.
        args: ``{"kind/name": {...}}`` constructor arguments, or a list of several sets of them;
            where there are none, ``conformance_args`` of the class is used.
        expected_failures: ``{"id" or "id[kind/name]": reason}``.
        limit_s: how long one check of one component may take; None: as each says.

    Raises:
        UnknownComponentError: no such plugin, check or component.
    """
    cases = plan(
        plugin_name,
        manager,
        ids=ids,
        also=also,
        args=args,
        expected_failures=expected_failures,
        limit_s=limit_s,
    )
    try:
        return [case.run() for case in cases]
    finally:
        for bench in {case.bench for case in cases if case.bench is not None}:
            bench.close()


def plan(  # noqa: PLR0913 - what may be chosen
    plugin_name: str,
    manager: PluginManager,
    *,
    ids: Iterable[str] | None = None,
    also: Iterable[str] = (),
    args: Mapping[str, Arguments | Sequence[Arguments]] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    limit_s: float | None = None,
) -> list[Case]:
    """Return what :func:`run_checks` runs."""
    record = _record(plugin_name, manager)
    components = _components(record, manager)
    variations = _variations(args or {}, components)
    checks = _chosen(collect_checks(manager), ids, set(also))
    missing = [need for need in needs_of(record, manager) if need.missing]
    cases = [
        replace(case, missing_asset=_missing_asset(case, missing))
        for check in checks
        for case in _cases(check, record=record, variations=variations, manager=manager)
    ]
    return _on_a_bench(_with_expectations(cases, expected_failures or {}), limit_s=limit_s)


def collect_checks(manager: PluginManager) -> list[Check]:
    """Return the checks of every plugin, then those that plugins give.

    A group that cannot be imported is there as one check, ``<group>.importable``, that fails.
    """
    checks = [check for target in GENERAL_GROUPS.values() for check in _imported(target)]
    for record, groups in manager.call("trinity_conformance_checks"):
        for group, target in groups.items():
            try:
                checks += _imported(target)
            except Exception as error:  # noqa: BLE001 -- around one plugin
                checks.append(_not_importable(group, target, f"{record.label}: {error}"))
    return checks


def _record(name: str, manager: PluginManager) -> PluginRecord:
    for record in manager.records:
        if record.is_called(name):
            return record
    known = [record.name for record in manager.records]
    raise UnknownComponentError(unknown_name("plugin", name, known))


def _components(record: PluginRecord, manager: PluginManager) -> list[Component]:
    """Return what the plugin's hooks and its decorators gave, shadowed names too."""
    found = {(one.kind, one.name): one for one in record.components}
    for one in manager.components():
        if one.origin.key == record.key:
            found.setdefault((one.kind, one.name), one)
    return list(found.values())


def _variations(
    args: Mapping[str, Arguments | Sequence[Arguments]], components: Sequence[Component]
) -> list[tuple[str, Component, Arguments | None]]:
    by_key = {f"{component.kind}/{component.name}": component for component in components}
    for key in args:
        if key not in by_key:
            raise UnknownComponentError(unknown_name("component", key, by_key))
    rows: list[tuple[str, Component, Arguments | None]] = []
    for key, component in by_key.items():
        given = args.get(key)
        sets = [given] if given is None or isinstance(given, Mapping) else list(given)
        for number, arguments in enumerate(sets, start=1):
            rows.append((key if number == 1 else f"{key}#{number}", component, arguments))
    return rows


def _chosen(checks: list[Check], ids: Iterable[str] | None, also: set[str]) -> list[Check]:
    known = {check.id for check in checks} | {check.group for check in checks}
    plain = {check.id for check in checks if not check.is_opt_in}
    wanted = also | (plain if ids is None else set(ids))
    for name in sorted(wanted - known):
        raise UnknownComponentError(unknown_name("check", name, known))
    return [check for check in checks if wanted & {check.id, check.group}]


def _cases(
    check: Check,
    *,
    record: PluginRecord,
    variations: Sequence[tuple[str, Component, Arguments | None]],
    manager: PluginManager,
) -> list[Case]:
    if not check.kinds:
        return [Case(check=check, subject=record, context=CheckContext(manager=manager))]
    return [
        Case(
            check=check,
            subject=component,
            context=CheckContext(manager=manager, args=arguments),
            component=label,
        )
        for label, component, arguments in variations
        if component.kind in check.kinds or (check.kinds == EVERY_KIND and "#" not in label)
    ]


def _missing_asset(case: Case, missing: Sequence[Need]) -> str:
    """Return which of the missing needs the case has, in words; empty: none."""
    if not _needs_assets(case):
        return ""
    label = case.component.split("#")[0]
    wanted = [need for need in missing if not need.needed_by or label in need.needed_by]
    return wanted[0].sentence if wanted else ""


def _needs_assets(case: Case) -> bool:
    """Tell whether the case uses its component, on no data that somebody gave it."""
    uses_it = bool(case.check.kinds) and case.check.kinds != EVERY_KIND
    return uses_it and case.context.args is None


def _with_expectations(cases: list[Case], expected: Mapping[str, str]) -> list[Case]:
    known = {name for case in cases for name in (case.check.id, case.label)}
    for name, reason in expected.items():
        if name not in known:
            raise UnknownComponentError(unknown_name("check of this plugin", name, known))
        if not reason.strip():
            raise ValueError(f"expected_failures[{name!r}] needs a reason")
    return [
        replace(case, expected_failure=expected.get(case.label, expected.get(case.check.id, "")))
        for case in cases
    ]


def _on_a_bench(cases: list[Case], *, limit_s: float | None) -> list[Case]:
    """Return the cases, each of which can be run apart from this process."""
    bench = Bench(limit_s=limit_s)
    bench.cases = [replace(case, bench=bench, number=number) for number, case in enumerate(cases)]
    return list(bench.cases)


def _imported(target: str) -> Sequence[Check]:
    module, _, name = target.partition(":")
    found: Sequence[Check] = getattr(importlib.import_module(module), name)
    return found


def _not_importable(group: str, target: str, why: str) -> Check:
    return Check(
        id=f"{group}.importable",
        function=lambda *_: Finding(f"the checks {target!r} cannot be imported: {why}"),
        remedy="Correct what trinity_conformance_checks() returns.",
    )
