"""What every monitor must hold. ``args`` are those of ``monitor.monitor_args``."""

from __future__ import annotations

import math
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trinity.extend import KINDS

from trinity_testing.check import Check, CheckContext, Finding, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.extend.component import Component

__all__ = ["checks"]

METRICS = {
    "actor/loss": 0.25,
    "time/train_s": 1.5,
    "rollout/reward/mean": -0.5,
    "buffer/held": 3.0,
    "eval/a set/mean@4": 1.0,
}
ODD = {"actor/grad_norm": math.nan, "actor/kl": math.inf, "sync/model_version": 7}


def takes_what_it_is_given(component: Component, context: CheckContext) -> Finding | None:
    """Find a monitor that fails by a number: NaN, infinity, a whole one, or none at all."""
    with _opened(component, context) as monitor:
        for step, metrics in enumerate((METRICS, ODD, {}), start=1):
            try:
                monitor.log(dict(metrics), step=step)
            except Exception as error:  # noqa: BLE001 -- of the part under test
                return Finding(f"log({metrics}) raised {type(error).__name__}: {error}")
    return None


def changes_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a monitor that changes the metrics, which others get after it."""
    given = METRICS | ODD
    with _opened(component, context) as monitor:
        monitor.log(given, step=1)
    if repr(given) != repr(METRICS | ODD):
        return Finding(f"after log(), the metrics are {given}")
    return None


def goes_back_a_step(component: Component, context: CheckContext) -> Finding | None:
    """Find a monitor that refuses an earlier step, as a resumed run gives it."""
    with _opened(component, context) as monitor:
        for step in (1, 2, 3, 2):
            try:
                monitor.log(dict(METRICS), step=step)
            except Exception as error:  # noqa: BLE001 -- of the part under test
                return Finding(f"step {step} raised {type(error).__name__}: {error}")
    return None


def closes_twice(component: Component, context: CheckContext) -> Finding | None:
    """Find a monitor that cannot be closed twice."""
    with TemporaryDirectory() as folder:
        monitor = _made(component, context, folder)
        monitor.log(dict(METRICS), step=1)
        monitor.close()
        try:
            monitor.close()
        except Exception as error:  # noqa: BLE001 -- of the part under test
            return Finding(f"the second close() raised {type(error).__name__}: {error}")
    return None


def goes_on_after_a_resume(component: Component, context: CheckContext) -> Finding | None:
    """Find a monitor that throws away what the run wrote before it was resumed."""
    with TemporaryDirectory() as folder:
        for step in (1, 2):
            before = _contents(folder)
            monitor = _made(component, context, folder)
            monitor.log(dict(METRICS), step=step)
            monitor.close()
            after = _contents(folder)
            if not after:
                raise Skipped("it writes no file below its directory")
            lost = [
                name for name, text in before.items() if not after.get(name, b"").startswith(text)
            ]
            if lost:
                return Finding(f"opened again, it has written over {lost[0]}")
    return None


def serves_two_roles(component: Component, context: CheckContext) -> Finding | None:
    """Find a monitor of which there can be only one in a directory, where each role has one."""
    with TemporaryDirectory() as folder:
        monitors = [_made(component, context, folder, role=r) for r in ("explorer", "trainer")]
        sizes = []
        for step in (1, 2):
            for monitor in monitors:
                monitor.log(dict(METRICS), step=step)
        for monitor in monitors:
            monitor.close()
            sizes.append(sum(map(len, _contents(folder).values())))
    empty, alone = (_size_of_one(component, context, steps) for steps in ((), (1, 2)))
    if alone and sizes[-1] - empty < 1.5 * (alone - empty):
        return Finding(f"two roles wrote {sizes[-1]} bytes, one alone writes {alone}")
    return None


def _size_of_one(component: Component, context: CheckContext, steps: Sequence[int]) -> int:
    with TemporaryDirectory() as folder:
        monitor = _made(component, context, folder)
        for step in steps:
            monitor.log(dict(METRICS), step=step)
        monitor.close()
        return sum(map(len, _contents(folder).values()))


def _made(
    component: Component, context: CheckContext, folder: str, *, role: str = "trainer"
) -> Any:
    return KINDS["monitor"].made(
        context.load(component), context.arguments(component), directory=Path(folder), role=role
    )


@contextmanager
def _opened(component: Component, context: CheckContext) -> Iterator[Any]:
    with TemporaryDirectory() as folder:
        monitor = _made(component, context, folder)
        try:
            yield monitor
        finally:
            monitor.close()


def _contents(folder: str) -> dict[str, bytes]:
    """Return what the files hold; a link that names the newest of them says nothing of its own."""
    found = (path for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())
    files = sorted(found)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


_KINDS = frozenset({"monitor"})
checks = (
    Check(
        id="monitor.takes",
        function=takes_what_it_is_given,
        remedy="Take every float: write null, or leave out, what your format cannot hold.",
        kinds=_KINDS,
    ),
    Check(
        id="monitor.pure",
        function=changes_nothing,
        remedy="Make a mapping of your own.",
        kinds=_KINDS,
    ),
    Check(
        id="monitor.steps",
        function=goes_back_a_step,
        remedy="Write what comes; the run has cut off what it does again.",
        kinds=_KINDS,
    ),
    Check(
        id="monitor.close",
        function=closes_twice,
        remedy="Let the second close() do nothing.",
        kinds=_KINDS,
    ),
    Check(
        id="monitor.resume",
        function=goes_on_after_a_resume,
        remedy="Open files to append.",
        kinds=_KINDS,
    ),
    Check(
        id="monitor.roles",
        function=serves_two_roles,
        remedy="Append, or have a file for each role.",
        kinds=_KINDS,
    ),
)
