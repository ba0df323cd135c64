"""Advisors with one mistake each."""

import time

from trinity.common.ports import Advice, Advisor


class WantsEveryMetric(Advisor):
    """Fails where a step has no gradient norm."""

    def observe(self, seen):
        if seen.role == "trainer":
            assert seen.metrics["actor/grad_norm"] is not None


class MarksTheMetrics(Advisor):
    """Writes into the metrics it is given."""

    def observe(self, seen):
        seen.metrics["looked/at"] = 1.0


class AlwaysComplains(Advisor):
    """Finds fault with the tenth step of every run."""

    def observe(self, seen):
        return Advice(seen="ten steps", remedy="Fewer") if seen.step == 10 else None


class ThinksLong(Advisor):
    """Takes three milliseconds of the loop's thread for a step."""

    def observe(self, seen):
        ends = time.thread_time() + 0.003
        while time.thread_time() < ends:
            pass
