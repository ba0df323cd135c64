"""How fast an algorithm learns the lesson."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trinity.errors import ConfigError
from trinity.extend import set_manager

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trinity.extend import PluginManager

__all__ = ["GOAL", "MAX_STEPS", "LearningCurve", "curve_table", "learning_curve"]

GOAL = 0.8
MAX_STEPS = 60


@dataclass(frozen=True, kw_only=True)
class LearningCurve:
    """The mean reward of each step until the goal was reached, or the steps were over."""

    algorithm: str
    rewards: tuple[float, ...]
    seconds: float

    @property
    def before(self) -> float:
        """Return the reward of the model that knows nothing."""
        return self.rewards[0]

    @property
    def after(self) -> float:
        """Return the reward of the last step."""
        return self.rewards[-1]

    @property
    def steps_to_goal(self) -> int | None:
        """Return after how many train steps the goal was reached; None: it was not."""
        return len(self.rewards) - 1 if self.after >= GOAL else None

    def __str__(self) -> str:
        reached = f"{GOAL} after {self.steps_to_goal} steps"
        if self.steps_to_goal is None:
            reached = f"not {GOAL} in {len(self.rewards) - 1} steps"
        return f"reward {self.before:.2f} -> {self.after:.2f}, {reached}"


def learning_curve(
    algorithm: str, manager: PluginManager, *, max_steps: int = MAX_STEPS
) -> LearningCurve:
    """Return how the mean reward grows while the algorithm trains a tiny model.

    Everything but the explorer is real: trainer, engine, buffer, and the algorithm's own parts.
    Algorithms that read files get demonstrations, or pairs; those without advantages the better
    half of each group.

    Raises:
        ConfigError: the algorithm cannot be run with the parts that are installed.
        TrinityError: a part failed.
    """
    from trinity.common.models.pretrained import no_progress_bars

    from trinity_testing.learning.toy_run import ToyRun, resolved_config

    began = time.perf_counter()
    with _undisturbed(manager), no_progress_bars():
        config, problems = resolved_config(algorithm, manager)
        if problems:
            raise ConfigError("; ".join(map(str, problems)))
        run = ToyRun(config, manager=manager, total_steps=max_steps)
        rewards: list[float] = []
        try:
            while len(rewards) <= max_steps and (not rewards or rewards[-1] < GOAL):
                rewards.append(run.step(len(rewards) + 1))
        finally:
            run.close()
    return LearningCurve(
        algorithm=algorithm, rewards=tuple(rewards), seconds=time.perf_counter() - began
    )


def curve_table(curves: Iterable[LearningCurve]) -> str:
    """Return the curves as a Markdown table."""
    rows = [
        "| algorithm | reward before | after | steps to 0.8 | seconds |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {curve.algorithm} | {curve.before:.2f} | {curve.after:.2f} "
        f"| {curve.steps_to_goal or 'not reached'} | {curve.seconds:.1f} |"
        for curve in curves
    ]
    return "\n".join(rows)


@contextmanager
def _undisturbed(manager: PluginManager) -> Iterator[None]:
    """Let the parts find this manager as the process's; leave random numbers and threads alone."""
    import torch

    before, num_threads = set_manager(manager), torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(num_threads)
        set_manager(before)
