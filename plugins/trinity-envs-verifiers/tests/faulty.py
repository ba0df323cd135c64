import verifiers.v1 as vf


class Faulty(vf.Task[vf.TaskData]):
    @vf.reward
    async def judged(self, trace) -> float:
        if self.data.idx == 1:
            raise KeyError("answer")
        return 0.5


class FaultyTasks(vf.Taskset[Faulty]):
    def load(self):
        for n in range(3):
            yield Faulty(vf.TaskData(prompt=f"say {n}"))


__all__ = ["FaultyTasks"]
