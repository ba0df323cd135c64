"""What a check is, and what it finds."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import PluginError

if TYPE_CHECKING:
    from trinity.extend.component import Component
    from trinity.extend.manager import PluginManager

__all__ = [
    "Arguments",
    "Case",
    "Check",
    "CheckContext",
    "Evidence",
    "Finding",
    "Result",
    "Skipped",
    "Status",
]

Severity = Literal["error", "warning"]
Arguments = Mapping[str, Any]  # Any: constructor arguments of a component


class Status(StrEnum):
    """How a check ended."""

    PASS = "PASS"
    FAIL = "FAIL"
    SKIP = "SKIP"
    ERROR = "ERROR"  # the check, or the component under it, raised
    XFAIL = "XFAIL"
    XPASS = "XPASS"


class Skipped(Exception):  # noqa: N818 - an outcome, not an error
    """Raised inside a check that cannot say anything about its subject; the text says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What does not hold; remedy and severity are the check's own unless given."""

    message: str
    remedy: str = ""
    severity: Severity | None = None  # None: the check's


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a check that holds has measured; it becomes the result's message."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that must hold.

    Attributes:
        id: ``group.name``, as in ``reward_fn.pure``.
        function: takes the subject (a ``PluginRecord``, or a ``Component``) and a ``CheckContext``.
        remedy: what the author can do about a finding.
        severity: a warning does not fail.
        kinds: the kinds of component it looks at; empty: it looks at the plugin; ``*``: at each.
        is_opt_in: it costs much, so that it is run only where its id or group is asked for.
    """

    id: str
    function: Callable[[Any, CheckContext], Finding | Evidence | None]  # Any: see kinds
    remedy: str
    severity: Severity = "error"
    kinds: frozenset[str] = frozenset()
    is_opt_in: bool = False

    @property
    def group(self) -> str:
        """Return the part of the id before the dot."""
        return self.id.split(".")[0]

    def run(self, subject: Any, context: CheckContext) -> Finding | Evidence | None:
        """Return what does not hold; else None, or what was measured."""
        return self.function(subject, context)


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """What a check may use beside its subject.

    Attributes:
        manager: where the plugin is installed.
        args: the arguments to try the component with; None: its class's ``conformance_args``, if
            it has them, else none.
    """

    manager: PluginManager
    args: Arguments | None = None

    def load(self, component: Component) -> type:
        """Return the component's class; without one, the check is skipped."""
        try:
            return component.load()
        except PluginError as error:
            raise Skipped("component.resolves fails") from error

    def arguments(self, component: Component) -> Arguments:
        """Return what the component is to be tried with."""
        if self.args is not None:
            return self.args
        return getattr(self.load(component), "conformance_args", {})

    def build(self, component: Component, *, without: Collection[str] = ()) -> Any:
        """Return an instance made with the arguments, those in ``without`` left out.

        Raises:
            Skipped: the constructor needs arguments that nobody gave.
        """
        cls = self.load(component)
        given = {
            name: value for name, value in self.arguments(component).items() if name not in without
        }
        missing = [name for name in required_arguments(cls) if name not in given]
        if missing:
            key = f"{component.kind}/{component.name}"
            raise Skipped(f"needs {', '.join(missing)}; give it with args={{{key!r}: {{...}}}}")
        return cls(**given)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How one check ended for one subject."""

    id: str
    component: str  # "kind/name", "kind/name#2" for a second set of arguments, "" for the plugin
    status: Status
    message: str = ""
    remedy: str = ""
    severity: Severity = "error"

    @property
    def is_bad(self) -> bool:
        """Return whether a command or a test fails by it."""
        if self.status is Status.FAIL:
            return self.severity == "error"
        return self.status in {Status.ERROR, Status.XPASS}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One check that is about to be run for one subject."""

    check: Check
    subject: Any  # PluginRecord or Component, as check.kinds says
    context: CheckContext
    component: str = ""
    expected_failure: str = ""  # the reason; "" if it must pass
    missing_asset: str = ""  # what the plugin lacks; "": nothing that the case needs

    @property
    def label(self) -> str:
        """Return the case as ``id`` or ``id[kind/name]``."""
        return f"{self.check.id}[{self.component}]" if self.component else self.check.id

    def run(self) -> Result:
        """Return the result; what the check raises is part of it."""
        result = Result(
            id=self.check.id,
            component=self.component,
            status=Status.PASS,
            remedy=self.check.remedy,
            severity=self.check.severity,
        )
        if self.missing_asset:
            return replace(result, status=Status.SKIP, message=self.missing_asset)
        try:
            finding = self.check.run(self.subject, self.context)
        except Skipped as reason:
            return replace(result, status=Status.SKIP, message=str(reason))
        except Exception as error:  # noqa: BLE001 - a plugin's own code runs in here
            return self._as_expected(replace(result, status=Status.ERROR, message=_raised(error)))
        if finding is None or isinstance(finding, Evidence):
            return self._as_expected(replace(result, message=finding.message if finding else ""))
        return self._as_expected(
            replace(
                result,
                status=Status.FAIL,
                message=finding.message,
                remedy=finding.remedy or result.remedy,
                severity=finding.severity or result.severity,
            )
        )

    def _as_expected(self, result: Result) -> Result:
        if not self.expected_failure:
            return result
        if result.status is not Status.PASS:
            return replace(
                result, status=Status.XFAIL, message=f"{self.expected_failure} ({result.message})"
            )
        return replace(
            result,
            status=Status.XPASS,
            message=f"passes, but a failure is expected: {self.expected_failure}",
            remedy=f"Remove {self.check.id!r} from expected_failures.",
        )


def required_arguments(cls: type) -> list[str]:
    """Return the names of the constructor's arguments that have no default."""
    positional = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return [
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in positional
    ]


def _raised(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"raised {type(error).__name__}: {error}{at}"
