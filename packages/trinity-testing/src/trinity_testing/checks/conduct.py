"""What a component of any kind may not do beside its work.

Each check uses the component once or twice, as the runtime uses it
(``trinity_testing.checks.exercises``), and looks at what else has changed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Literal

from trinity_testing.check import Check, CheckContext, Finding, NotBuilt, Skipped
from trinity_testing.checks.compared import copied, difference
from trinity_testing.checks.exercises import EXERCISES, exercise
from trinity_testing.checks.global_state import (
    GENERATORS,
    SETTINGS,
    settings_now,
    threads_pretended,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.extend.component import Component

    from trinity_testing.checks.exercises import Exercise

__all__ = ["checks"]

THREADS = 3  # a number that nobody would set
SEEDS = (71, 72)


def can_be_built(component: Component, context: CheckContext) -> Finding | None:
    """Find a part that cannot be made: it raises, or needs arguments that nobody gave."""
    try:
        exercise(component, context)
    except NotBuilt as reason:
        severity: Literal["error", "warning"] = "warning" if reason.is_asked else "error"
        message = f"cannot be built, so that nothing of it was tried: {reason}"
        return Finding(message, severity=severity)
    return None


def ends_and_lets_its_process_live(component: Component, context: CheckContext) -> Finding | None:
    """Find a part that never returns, or that ends the process that it runs in."""
    with _restored():
        _used(component, context)
    return None


def leaves_global_settings(component: Component, context: CheckContext) -> Finding | None:
    """Find a part that changes what torch, numpy or the interpreter hold for everybody."""
    with _restored(), threads_pretended(THREADS):
        before = settings_now()
        _used(component, context)
        after = settings_now()
    changed = [name for name, value in after.items() if value != before[name]]
    if not changed:
        return None
    first = changed[0]
    words = f"from {before[first]!s:.60} to {after[first]!s:.60}"
    also = f"; it also changes {', '.join(changed[1:])}" if changed[1:] else ""
    return Finding(f"it changes {first} {words}{also}")


def leaves_the_seed(component: Component, context: CheckContext) -> Finding | None:
    """Find a part that seeds the random numbers that everybody draws from."""
    ends: list[dict[str, Any]] = []
    with _restored():
        for seed in SEEDS:
            for generator in GENERATORS.values():
                generator.seed(seed)
            _used(component, context)
            ends.append({name: generator.read() for name, generator in GENERATORS.items()})
    seeded = [name for name, state in ends[0].items() if state == ends[1][name]]
    if not seeded:
        return None
    return Finding(
        f"it seeds the generator of {' and '.join(seeded)}: two different states are one after it"
    )


def leaves_what_it_is_given(component: Component, context: CheckContext) -> Finding | None:
    """Find a part that changes what it was given: rewards, tokens, masks, fields, its task."""
    with _restored():
        use = exercise(component, context)
        before = {name: copied(value) for name, value in use.given().items()}
        _result(use)
        after = use.given()
    for name, value in before.items():
        words = difference(value, after[name])
        if words:
            return Finding(f"it changes {name}{words}")
    return None


def gives_the_same_again(component: Component, context: CheckContext) -> Finding | None:
    """Find a part whose result depends on how often it was called, or on what came before."""
    with _restored():
        use = exercise(component, context)
        if not use.is_repeatable:
            raise Skipped(f"a {component.kind} may go on from call to call")
        first, second = _result(use), _result(use)
    words = difference(first, second)
    return Finding(f"called again with equal inputs, the result differs{words}") if words else None


def _used(component: Component, context: CheckContext) -> None:
    """Use the component; an error of its own is another check's."""
    with contextlib.suppress(Exception):
        exercise(component, context).call()


def _result(use: Exercise) -> Any:
    """Return what a use gives; without a result, there is nothing to look at."""
    try:
        return copied(use.call())
    except Skipped:
        raise
    except Exception as error:
        raise Skipped(f"it raised {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    """Put back whatever is changed inside."""
    settings = settings_now()
    states = {name: generator.read() for name, generator in GENERATORS.items()}
    try:
        yield
    finally:
        for name, value in settings.items():
            if SETTINGS[name].read() != value:
                SETTINGS[name].write(value)
        for name, generator in GENERATORS.items():
            generator.write(states[name])


KINDS = frozenset(EXERCISES)
checks = (
    Check(
        id="conduct.builds",
        function=can_be_built,
        remedy="Give its arguments in the class, `conformance_args = {...}`, or to "
        "conformance.suite(args=...).",
        kinds=KINDS,
    ),
    Check(
        id="conduct.ends",
        function=ends_and_lets_its_process_live,
        remedy="Bound every wait, and raise where you cannot go on.",
        kinds=KINDS,
        limit_s=60.0,
    ),
    Check(
        id="conduct.settings",
        function=leaves_global_settings,
        remedy="Use the context managers (torch.device, torch.no_grad, np.errstate), or give dtype "
        "and device to each call; the run owns these settings.",
        kinds=KINDS,
    ),
    Check(
        id="conduct.seed",
        function=leaves_the_seed,
        remedy="Draw from a generator of your own: random.Random(seed), torch.Generator(), "
        "numpy.random.default_rng(seed).",
        kinds=KINDS,
    ),
    Check(
        id="conduct.inputs",
        function=leaves_what_it_is_given,
        remedy="Change a copy: clone() a tensor, copy.deepcopy() what is nested. Others read the "
        "original.",
        kinds=KINDS,
    ),
    Check(
        id="conduct.repeats",
        function=gives_the_same_again,
        remedy="Keep nothing between calls that the result depends on; no checkpoint holds it.",
        kinds=KINDS,
    ),
)
