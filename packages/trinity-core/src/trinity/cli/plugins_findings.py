"""Say what the checks of plugins found: what has one cause in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from trinity.extend.conformance.checks import Result

FOUND = {"FAIL", "ERROR", "XPASS"}
SLOW_S = 5.0
SHOWN_NAMES, SHOWN_SLOW = 3, 5

Named = tuple[str, "Result"]  # the plugin's name, and what a check of it came to
K = TypeVar("K", bound="Hashable")


def finding_rows(results: Iterable[Named]) -> list[tuple[str, str, str, str, str]]:
    """Return a row for each cause: plugin, status, checks, component, what to do.

    Checks of one component that say the same have met the same thing.
    """
    found = [named for named in results if named[1].status.value in FOUND]
    causes = _grouped(found, lambda plugin, r: (plugin, r.status.value, r.component, r.message))
    return [
        (plugin, status, _listed([result.id for _, result in alike]), component, _told(alike))
        for (plugin, status, component, _), alike in causes.items()
    ]


def skip_lines(results: Iterable[Named]) -> list[str]:
    """Return a line for each reason why checks were skipped, and which."""
    skipped = [named for named in results if named[1].status.value == "SKIP"]
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
