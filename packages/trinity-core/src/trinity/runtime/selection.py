"""Which checkpoints are the best by an evaluation, and whether the run should stop for it.

What it decides on is in `Progress`, so that both go on after a kill.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trinity.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.config.trainer import EarlyStoppingConfig, KeepBestConfig
    from trinity.common.metrics import Metrics
    from trinity.runtime.record.progress import Progress


class Selection:
    """Follows the evaluations of a stage.

    Args:
        config: of the stage.
    """

    def __init__(self, config: Config) -> None:
        self._best: KeepBestConfig | None = config.trainer.keep_best
        self._stopping: EarlyStoppingConfig | None = config.trainer.early_stopping

    @property
    def keeps_best(self) -> bool:
        return self._best is not None

    def note(self, metrics: Metrics, progress: Progress) -> bool:
        """Take in an evaluation; return whether a checkpoint of it must be written.

        Raises:
            ConfigError: there is no such metric.
        """
        self._note_watched(metrics, progress)
        return self._note_best(metrics, progress)

    def reason_to_stop(self, progress: Progress) -> str:
        """Return why the run ends now; empty: it goes on."""
        given = self._stopping
        if given is None:
            return ""
        if given.patience and progress.evaluations_in_vain >= given.patience:
            name = progress.watched_metric
            return (
                f"{name} has not improved on {progress.top_value:.4g} by more than "
                f"{given.min_delta:g} for {progress.evaluations_in_vain} evaluations"
            )
        if given.max_wall_time is not None and progress.seconds >= given.max_wall_time:
            return f"max_wall_time of {given.max_wall_time:g} s is over"
        return ""

    def better_before(self, progress: Progress) -> float | None:
        """Return the value before training if no checkpoint reached it; None: one did."""
        given, before = self._best, progress.value_before
        if given is None or before is None or not progress.best:
            return None
        sign = -1.0 if given.mode == "min" else 1.0
        return before if sign * before > sign * progress.best[0][0] else None

    def _note_watched(self, metrics: Metrics, progress: Progress) -> None:
        given = self._stopping
        if given is None or not given.patience:
            return
        name, value = _value(metrics, given.metric, "early_stopping")
        sign = -1.0 if given.mode == "min" else 1.0
        before, progress.watched_metric = progress.top_value, name
        if before is not None and math.isnan(before) and not math.isnan(value):
            before = None
        if before is None or sign * (value - before) > given.min_delta:
            progress.top_value, progress.evaluations_in_vain = value, 0
        else:
            progress.evaluations_in_vain += 1  # NaN too

    def _note_best(self, metrics: Metrics, progress: Progress) -> bool:
        given = self._best
        if given is None:
            return False
        progress.best_metric, value = _value(metrics, given.metric, "keep_best")
        if math.isnan(value):
            return False
        if not progress.train_steps:
            progress.value_before = value
            return False  # the model that it began with is there anyway
        sign = -1.0 if given.mode == "min" else 1.0
        others = [one for one in progress.best if one[1] != progress.train_steps]
        ranked = sorted(
            [*others, (value, progress.train_steps)], key=lambda one: (-sign * one[0], one[1])
        )
        progress.best = ranked[: given.num]
        return (value, progress.train_steps) in progress.best


def _value(metrics: Metrics, name: str, section: str) -> tuple[str, float]:
    """Return the metric and its value; without a name that of the first reward.

    Raises:
        ConfigError: there is no such metric.
    """
    name = name or next((one for one in metrics if "/reward/mean@" in one), "")
    if name not in metrics:
        what = unknown_name("metric", name, metrics) if name else "no rollout has a reward."
        raise ConfigError(f"trainer.{section}.metric: {what} Name a metric of the evaluation.")
    return name, metrics[name]
