"""The taskset that the plugin is checked with: whoever says more is rewarded more."""

from __future__ import annotations

from typing import Any

import verifiers.v1 as vf

__all__ = ["Example"]


class SaySomething(vf.Task[vf.TaskData]):
    """Rewards each character with a tenth, ten at most."""

    @vf.reward
    async def length(self, trace: Any) -> float:
        """Return what the reply's length is worth."""
        text = "".join(str(message.content or "") for message in trace.assistant_messages)
        return min(10, len(text)) / 10


class Example(vf.Taskset[SaySomething]):
    """Two tasks."""

    def load(self) -> list[SaySomething]:
        """Return the tasks."""
        return [SaySomething(vf.TaskData(prompt=f"Say something ({n}).")) for n in range(2)]
