"""Monitors that run to their end, each with one mistake."""

from trinity.monitor.jsonl import JsonlMonitor


class DropsEveryThird(JsonlMonitor):
    """Drops every third metric."""

    def log(self, metrics, *, step):
        super().log({n: v for i, (n, v) in enumerate(metrics.items()) if i % 3 != 2}, step=step)


class DropsEveryOtherStep(JsonlMonitor):
    """Drops every other step."""

    def log(self, metrics, *, step):
        if step % 2:
            super().log(metrics, step=step)


class RoundsToTenths(JsonlMonitor):
    """Rounds each number to tenths."""

    def log(self, metrics, *, step):
        super().log({name: round(value, 1) for name, value in metrics.items()}, step=step)


class OneStepLate(JsonlMonitor):
    """Writes each line under the step after it."""

    def log(self, metrics, *, step):
        super().log(metrics, step=step + 1)


class WritesNothing(JsonlMonitor):
    """Takes all metrics and writes none."""

    def log(self, metrics, *, step):
        pass


class TakesAway(JsonlMonitor):
    """Takes the loss out of the metrics that it is given."""

    def log(self, metrics, *, step):
        metrics.pop("actor/loss", None)
        super().log(metrics, step=step)


class SwapsTwoNames(JsonlMonitor):
    """Writes the gradient norm as the loss, and the loss as the gradient norm."""

    def log(self, metrics, *, step):
        swapped = dict(metrics)
        if "actor/loss" in metrics:
            swapped["actor/loss"] = metrics["actor/grad_norm"]
            swapped["actor/grad_norm"] = metrics["actor/loss"]
        super().log(swapped, step=step)
