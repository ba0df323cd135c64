"""What a check is, and what it finds."""

from __future__ import annotations

import inspect
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trinity.errors import PluginError
from trinity.extend.component import Component  # noqa: TC002 -- the pages of the API read it

if TYPE_CHECKING:
    from trinity.extend.manager import PluginManager

    from trinity_testing.bench import Bench

Severity = Literal["error", "warning"]
LIMIT_S = 120.0
NOT_ENDED = "it did not end in"  # how the message of a check begins that was given up
BOUND_IT = "Bound every wait and every loop, and let what waits raise."
RAISE = "Raise an error that says what is wrong: whether the process ends is for its owner to say."
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


class NotBuilt(Skipped):
    """Raised where the component cannot be made; ``is_asked`` where it needs what nobody gave."""

    def __init__(self, reason: str, *, is_asked: bool = False) -> None:
        super().__init__(reason)
        self.is_asked = is_asked


class HungError(Exception):
    """Raised inside a check that waits in vain for its subject; ``limit_s`` is how long it did."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"{NOT_ENDED} {limit_s:g} s")


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
        is_apart: a check of a component runs in a process of its own, which a part may end, or
            which is ended with a part that hangs; False: in the caller's.
        limit_s: how long it may take there.
        prepare: what its process needs and is dear to make; called in the caller's before the
            process is made, each time, so that it must remember that it was.
    """

    id: str
    function: Callable[[Any, CheckContext], Finding | Evidence | None]  # Any: see kinds
    remedy: str
    severity: Severity = "error"
    kinds: frozenset[str] = frozenset()
    is_opt_in: bool = False
    is_apart: bool = True
    limit_s: float = LIMIT_S
    prepare: Callable[[], object] | None = None

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
            NotBuilt: the constructor needs arguments that nobody gave, or raised.
        """
        cls = self.load(component)
        given = {
            name: value for name, value in self.arguments(component).items() if name not in without
        }
        missing = [name for name in required_arguments(cls) if name not in given]
        if missing:
            key = f"{component.kind}/{component.name}"
            raise NotBuilt(
                f"needs {', '.join(missing)}; give it with args={{{key!r}: {{...}}}}", is_asked=True
            )
        try:
            return cls(**given)
        except Exception as error:
            raise NotBuilt(f"its constructor {in_words(error)}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """How one check ended for one subject."""

    id: str
    component: str  # "kind/name", "kind/name#2" for a second set of arguments, "" for the plugin
    status: Status
    message: str = ""
    remedy: str = ""
    severity: Severity = "error"
    seconds: float = 0.0  # how long it took

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
    bench: Bench | None = None  # where it runs apart; None: in this process
    number: int = 0  # on the bench

    @property
    def label(self) -> str:
        """Return the case as ``id`` or ``id[kind/name]``."""
        return f"{self.check.id}[{self.component}]" if self.component else self.check.id

    def run(self) -> Result:
        """Return the result; what the check raises is part of it, and what ends its process."""
        if self.missing_asset:
            return replace(self.result(), status=Status.SKIP, message=self.missing_asset)
        began = time.monotonic()
        if self.bench is not None and self.check.kinds and self.check.is_apart:
            result = self.bench.run(self)
        else:
            result = self.run_here()
        return replace(result, seconds=round(time.monotonic() - began, 3))

    def run_here(self) -> Result:
        """Return the result of a run in this process."""
        try:
            found = self.check.run(self.subject, self.context)
        except Skipped as reason:
            return replace(self.result(), status=Status.SKIP, message=str(reason))
        except HungError as error:
            found = Finding(str(error), remedy=BOUND_IT)
        except SystemExit as error:
            found = Finding(f"it ends the process: {in_words(error)}", remedy=RAISE)
        except Exception as error:  # noqa: BLE001 - a plugin's own code runs in here
            message = in_words(error)
            return self.as_expected(replace(self.result(), status=Status.ERROR, message=message))
        if isinstance(found, Finding):
            return self.failed(found)
        return self.as_expected(replace(self.result(), message=found.message if found else ""))

    def result(self) -> Result:
        """Return the result of a check that holds."""
        return Result(
            id=self.check.id,
            component=self.component,
            status=Status.PASS,
            remedy=self.check.remedy,
            severity=self.check.severity,
        )

    def failed(self, finding: Finding) -> Result:
        """Return the result of a check that found something."""
        result = self.result()
        return self.as_expected(
            replace(
                result,
                status=Status.FAIL,
                message=finding.message,
                remedy=finding.remedy or result.remedy,
                severity=finding.severity or result.severity,
            )
        )

    def as_expected(self, result: Result) -> Result:
        """Return the result as the expectation makes it."""
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


def in_words(error: BaseException) -> str:
    """Return what was raised, and where, as the end of a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"raised {type(error).__name__}: {error}{at}"
