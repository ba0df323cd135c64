"""A plugin that opens the tracer's window after the first train step, for one step or several."""

from __future__ import annotations

import os
from typing import Any

import step_tracer
import torch
from trinity.common.rewards import RewardFn
from trinity.extend import hookimpl

TRINITY_PLUGIN_API = 1
OPENS_AFTER = 1  # train steps
CLOSES_AFTER = OPENS_AFTER + int(os.environ.get(step_tracer.STEPS, "1"))  # noqa: TID251

_backward = torch.Tensor.backward


def _noted_backward(self: torch.Tensor, *arguments: Any, **options: Any) -> None:
    step_tracer.installed().backward()
    _backward(self, *arguments, **options)


torch.Tensor.backward = _noted_backward


@hookimpl
def trinity_step_finished(step: int) -> None:
    """Open or close the window."""
    if step in {OPENS_AFTER, CLOSES_AFTER}:
        step_tracer.installed().set_window(is_open=step == OPENS_AFTER)


@hookimpl
def trinity_reward_fns() -> dict[str, str]:
    """Return a reward that needs no process of its own: their number depends on the machine."""
    return {"first_digit": f"{__name__}:FirstDigitReward"}


class FirstDigitReward(RewardFn):
    """Likes a response that begins with a digit."""

    def __call__(self, response: str, **kwargs: Any) -> dict[str, float]:
        """Return ``first_digit``, 1 or 0."""
        return {"first_digit": float(response[:1].isdigit())}
