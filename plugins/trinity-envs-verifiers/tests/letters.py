import verifiers.v1 as vf


class SayLetters(vf.Task[vf.TaskData]):
    @vf.reward
    async def common_letters(self, trace) -> float:
        text = "".join(str(message.content or "") for message in trace.assistant_messages)
        return sum(letter in "etaoin" for letter in text) / max(1, len(text))


class Letters(vf.Taskset[SayLetters]):
    def load(self):
        return [SayLetters(vf.TaskData(prompt=f"say {n}", name=f"n{n}")) for n in range(8)]


__all__ = ["Letters"]
