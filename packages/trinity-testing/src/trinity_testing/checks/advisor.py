"""What every advisor must hold: it reads whatever a run tells, changes nothing, and is quick."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from trinity.common.config import Config
from trinity.common.ports import Advice, Observation
from trinity.extend import KINDS

from trinity_testing.check import Check, CheckContext, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.extend.component import Component

__all__ = ["checks"]

_NUM_STEPS = 40
_MOST_S = 0.002  # CPU seconds of a step, samples apart
_ROLLOUT = {
    "rollout/reward/mean": 0.5, "rollout/reward/min": 0.0, "rollout/reward/max": 1.0,
    "rollout/response_length/mean": 12.0, "rollout/truncated/mean": 0.0,
    "rollout/failed_runs": 0.0, "rollout/num_runs": 8.0, "rollout/num_experiences": 8.0,
    "group_advantages/reward_std/mean": 0.4, "group_advantages/reward_std/max": 0.5,
}  # fmt: skip
_TRAINED = {
    "actor/entropy_loss": 1.2, "actor/grad_norm": 0.4, "actor/pg_clipfrac": 0.0,
    "actor/kl_loss": 0.01, "actor/rollout_logprob_diff": 1e-4, "actor/lr": 1e-6,
}  # fmt: skip
_EVALUATED = {"eval/held_out/reward/mean@2": 0.5, "eval/held_out/num_tasks": 4.0}


def takes_what_a_run_tells(component: Component, context: CheckContext) -> Finding | None:
    """Find an advisor that fails by a step: without metrics, with NaN, or without samples."""
    odd: list[dict[str, float]] = [{}, dict.fromkeys({**_ROLLOUT, **_TRAINED}, math.nan)]
    for metrics in (*odd, _ROLLOUT, _EVALUATED, _TRAINED):
        advisor = _made(component, context)
        for role in ("explorer", "trainer", "synchronizer"):
            for step in (1, 2, 3, 2):  # a resumed run gives an earlier one
                seen = Observation(role=role, step=step, metrics=dict(metrics))
                try:
                    advice = advisor.observe(seen)
                except Exception as error:  # noqa: BLE001 -- of the part under test
                    shown = f"{type(error).__name__}: {error}"
                    return Finding(f"observe() of a step of the {role} raised {shown}")
                if advice is not None and not isinstance(advice, Advice):
                    return Finding(f"observe() returned {advice!r:.80}, no Advice and not None")
    return None


def changes_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find an advisor that changes the metrics, which others get after it."""
    advisor = _made(component, context)
    for seen in _steps():
        before = dict(seen.metrics)
        advisor.observe(seen)
        if dict(seen.metrics) != before:
            return Finding(f"after observe(), the metrics are {dict(seen.metrics)}")
    return None


def is_quiet_where_nothing_is_wrong(component: Component, context: CheckContext) -> Finding | None:
    """Find an advisor that speaks of a run in which every step is like the first and well."""
    advisor = _made(component, context)
    for seen in _steps(rises=True):
        advice = advisor.observe(seen)
        if advice is not None:
            return Finding(f"at step {seen.step} of a run that learns it says: {advice.seen}")
    return None


def is_quick(component: Component, context: CheckContext) -> Finding | None:
    """Find an advisor that takes long: it is called in the loop's thread."""
    advisor, steps = _made(component, context), list(_steps())
    began = time.thread_time()
    for seen in steps:
        advisor.observe(seen)
    took = (time.thread_time() - began) / _NUM_STEPS
    if took > _MOST_S:
        return Finding(
            f"a step takes it {1000 * took:.1f} ms, and {1000 * _MOST_S:.0f} are allowed"
        )
    return None


def _steps(*, rises: bool = False) -> Iterator[Observation]:
    for step in range(1, _NUM_STEPS + 1):
        reward = 0.5 + (0.01 * step + 0.02 * (step % 2) if rises else 0.0)
        rollout = _ROLLOUT | {"rollout/reward/mean": reward}
        yield Observation(role="explorer", step=step, metrics=rollout)
        yield Observation(role="trainer", step=step, metrics=dict(_TRAINED))


def _made(component: Component, context: CheckContext) -> Any:
    config = Config.model_validate({"buffer": {"total_steps": _NUM_STEPS}})
    given = context.arguments(component)
    return KINDS["advisor"].made(context.load(component), given, config=config)


_KINDS = frozenset({"advisor"})
checks = (
    Check(
        id="advisor.takes",
        function=takes_what_a_run_tells,
        remedy="Ask for metrics with get(), and return an Advice or None.",
        kinds=_KINDS,
    ),
    Check(
        id="advisor.pure",
        function=changes_nothing,
        remedy="Make a mapping of your own.",
        kinds=_KINDS,
    ),
    Check(
        id="advisor.quiet",
        function=is_quiet_where_nothing_is_wrong,
        remedy="Wait for more steps, and compare with the spread of the steps before.",
        kinds=_KINDS,
    ),
    Check(
        id="advisor.quick",
        function=is_quick,
        remedy="Keep sums, not lists that are walked each step; read samples only when needed.",
        kinds=_KINDS,
    ),
)
