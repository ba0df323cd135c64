"""Conformance checks: a plugin's as one test (``suite``), and what one is made of (``Check``)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from trinity.extend import get_manager

from trinity_testing.check import (
    Arguments,
    Case,
    Check,
    CheckContext,
    Evidence,
    Finding,
    HungError,
    NotBuilt,
    Result,
    Skipped,
    Status,
    in_words,
    required_arguments,
)
from trinity_testing.planning import collect_checks, plan, run_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pytest

__all__ = [
    "Arguments",
    "Case",
    "Check",
    "CheckContext",
    "ConformanceWarning",
    "Evidence",
    "Finding",
    "HungError",
    "NotBuilt",
    "Result",
    "Skipped",
    "Status",
    "collect_checks",
    "in_words",
    "plan",
    "required_arguments",
    "run",
    "run_checks",
    "suite",
]

run = run_checks


class ConformanceWarning(UserWarning):
    """A finding that does not fail."""


def suite(
    plugin_name: str,
    *,
    expected_failures: Mapping[str, str] | None = None,
    args: Mapping[str, Arguments | Sequence[Arguments]] | None = None,
    ids: Iterable[str] | None = None,
    also: Iterable[str] = (),
    limit_s: float | None = None,
) -> Callable[..., None]:
    """Return a pytest test, parametrised with every check of an installed plugin.

    Args:
        plugin_name: the entry point's name, or the distribution's.
        expected_failures: ``{"workflow.determinism": "why"}``, or with one component
            ``{"workflow.determinism[workflow/textworld]": "why"}``. A check that passes although it
            is expected to fail, fails.
        args: ``{"advantage_fn/opmd": {"tau": 0.5}}``, constructor arguments of a component, or a
            list of several sets of them, each tested. For a workflow: fields of the ``Task``, and
            what ``trinity_testing.checks.workflow`` lists.
        ids: only these checks or groups; None: all but those that are opt-in.
        also: groups or checks beside these. ``also=["ray"]`` runs what a Ray worker must find; the
            tests have the mark ``ray``, which your pytest configuration must know.
        limit_s: how long one check of one component may take; None: as each says.

    Raises:
        UnknownComponentError: no such plugin, component or check.
    """
    import pytest

    cases = plan(
        plugin_name,
        get_manager(),
        ids=ids,
        also=also,
        args=args,
        expected_failures=expected_failures,
        limit_s=limit_s,
    )
    rows = [pytest.param(case, id=case.label, marks=_marks(case)) for case in cases]

    @pytest.mark.parametrize("case", rows)
    def test_conformance(case: Case) -> None:
        report(case.run())

    test_conformance.__doc__ = f"The plugin {plugin_name} holds what its parts promise."
    return test_conformance


def _marks(case: Case) -> tuple[pytest.MarkDecorator, ...]:
    import pytest

    return (pytest.mark.ray,) if case.check.group == "ray" else ()


def report(result: Result) -> None:
    """End the running test as the result says."""
    import pytest

    where = f"{result.id} of {result.component}" if result.component else result.id
    text = f"{where}: {result.message}\n{result.remedy}"
    if result.is_bad:
        pytest.fail(text, pytrace=False)
    if result.status is Status.SKIP:
        pytest.skip(result.message)
    if result.status is Status.XFAIL:
        pytest.xfail(result.message)
    if result.status is Status.FAIL:
        warnings.warn(text, ConformanceWarning, stacklevel=2)
