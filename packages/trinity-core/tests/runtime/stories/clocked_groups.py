"""Groups on the clock: the real explorer of single groups, whose pump is the clock."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

from trinity.explorer.explorer import ExploreResult
from trinity.runtime.group_storage import GroupSink
from trinity_debug.simulated_groups import VirtualGroups

sys.path.insert(0, str(Path(__file__).parent))
from scenarios import Scenario


class ClockedGroups(VirtualGroups):
    """The real one, whose pump is the clock."""

    parts: Any  # of the clocked run

    def _begin(self, number: int, task: Any) -> None:
        world = self.parts.world
        world.say("begin", number, self._buffer.slots[number].version)
        self.parts.ends[number] = world.now + world.scenario.seconds("rollout", number)
        super()._begin(number, task)

    def take(self, step: int) -> ExploreResult:
        result = super().take(step)
        self.parts.world.say("took", step, [row.info["group"] for row in self._shelf._taken])
        return result

    def pass_time(self, until: float) -> None:
        ends = self.parts.ends
        while ends and min(ends.values()) <= until:
            at, number = min((end, n) for n, end in ends.items())
            self.parts.world.now = at
            del ends[number]
            self.end_group(number, size=self.parts.world.scenario.groups)


class GroupPipeline:
    """Makes of the one row of a group as many as its scenario says."""

    def __init__(self, scenario: Scenario, sink: GroupSink) -> None:
        self._scenario, self._sink = scenario, sink

    def process(self, rows: Any) -> dict[str, float]:
        number = rows[0].info["group"]
        made = [copy.copy(rows[0]) for _ in self._scenario.rows_of(number)]
        self._sink.write(made)
        return {"experience_pipeline/num_written": float(len(made))}

    def feedback(self) -> dict[str, Any]:
        return {}
