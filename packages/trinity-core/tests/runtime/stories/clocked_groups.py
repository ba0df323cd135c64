"""Groups on the clock: the real explorer of single groups, whose pump is the clock."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from trinity.common.experience import EID, Experience
from trinity.explorer.continuous import ContinuousExplorer
from trinity.explorer.explorer import ExploreResult
from trinity.explorer.requests import RolloutResult
from trinity.runtime.group_storage import GroupSink

sys.path.insert(0, str(Path(__file__).parent))
from scenarios import Scenario


class ClockedGroups(ContinuousExplorer):
    """The real one, whose pump is the clock."""

    parts: Any  # of the clocked run

    def _start_pump(self) -> None: ...

    def _requests(self, task: Any, *, batch: str, number: int) -> list[Any]:
        return []

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
            batch, place = divmod(number, self.parts.world.scenario.groups)
            row = Experience(
                tokens=[1, 2], prompt_length=1, reward=1.0, eid=EID(batch + 1, place),
                info={"group": number},
            )  # fmt: skip
            request = SimpleNamespace(key=SimpleNamespace(task=place), num_runs=1)
            self._end(number, [RolloutResult(request=request, experiences=(row,))])


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


class Stream:
    """As many tasks as the steps of a run need."""

    def __init__(self, scenario: Scenario) -> None:
        self.num_steps, self._most = scenario.steps, scenario.steps * scenario.groups
        self._position = 0

    def read(self, count: int) -> list[Any]:
        if self._position >= self._most:
            raise StopIteration
        first, self._position = self._position, self._position + count
        return [SimpleNamespace(index={"index": n}) for n in range(first, self._position)]

    def again(self, index: Any) -> Any:
        return SimpleNamespace(index=index)

    def feedback(self, outcomes: Any) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {"position": self._position}

    def load_state_dict(self, state: Any) -> None:
        self._position = state["position"]
