"""Observations as a run gives them, and what an advisor makes of a sequence of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from trinity.common.config import Config
from trinity.common.ports import Advice, Advisor, Observation
from trinity.extend import KINDS

REWARD = "rollout/reward/mean"
_SECTIONS = ("rollout", "actor", "sample", "advantage", "group_advantages", "experience_pipeline")


def explored(step: int, **metrics: float) -> Observation:
    """Return a rollout step; names of no section are below ``rollout/``."""
    named = {_full(name, "rollout"): value for name, value in metrics.items()}
    return Observation(role="explorer", step=step, metrics={REWARD: 0.5} | named)


def trained(step: int, rows: Sequence[dict[str, Any]] = (), **metrics: float) -> Observation:
    """Return an optimizer step; names of no section are below ``actor/``."""
    named = {_full(name, "actor"): value for name, value in metrics.items()}
    return Observation(role="trainer", step=step, metrics=named, samples=lambda: rows)


def evaluated(step: int, value: float, *, std: float = 0.0) -> Observation:
    """Return an evaluation of 8 tasks with two rollouts each."""
    name = "eval/held_out/reward"
    metrics = {f"{name}/mean@2": value, f"{name}/std@2": std, "eval/held_out/num_tasks": 8.0}
    return Observation(role="explorer", step=step, metrics=metrics)


def a_row(
    eid: str = "1/0/0/0",
    response: Sequence[int] = (7, 8),
    *,
    reward: float = 0.0,
    advantage: float | None = 0.0,
    is_cut: bool = False,
) -> dict[str, Any]:
    """Return a sample as advisors get it."""
    return {
        "eid": eid, "reward": reward, "advantage": advantage, "prompt_length": 3, "metrics": {},
        "response": np.array(response, dtype=np.int32), "is_cut": is_cut,
    }  # fmt: skip


def both(step: int, rows: Sequence[dict[str, Any]] = (), **metrics: float) -> list[Observation]:
    """Return a rollout step and the optimizer step after it."""
    return [explored(step, **metrics), trained(step, rows)]


def found(advisor: Advisor, seen: Iterable[Observation]) -> tuple[int, Advice] | None:
    """Return the step in which the advisor speaks, and what it says."""
    for one in seen:
        advice = advisor.observe(one)
        if advice is not None:
            return one.step, advice
    return None


@pytest.fixture
def advisor() -> Callable[..., Advisor]:
    """Return a function that makes an advisor as a run makes it."""

    def make(made_of: type[Advisor], **config: Any) -> Advisor:
        return KINDS["advisor"].made(made_of, {}, config=Config.model_validate(config))

    return make


def _full(name: str, section: str) -> str:
    return name if name.partition("/")[0] in _SECTIONS else f"{section}/{name}"
