import time

import verifiers.v1 as vf


class Stuck(vf.Task[vf.TaskData]):
    @vf.reward
    async def judged(self, trace) -> float:
        if self.data.idx == 0:
            time.sleep(3600)
        if self.data.idx == 1:
            trace.metrics["number"] = object()
        return 0.5


class StuckTasks(vf.Taskset[Stuck]):
    def load(self):
        for n in range(3):
            yield Stuck(vf.TaskData(prompt=f"say {n}"))


__all__ = ["StuckTasks"]
