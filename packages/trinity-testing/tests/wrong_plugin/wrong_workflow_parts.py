"""Workflows, two right, the others with one mistake each."""

import random
import tempfile
import threading
from typing import ClassVar

from trinity.common.experience import Experience
from trinity.common.workflows import Workflow
from trinity.errors import TrinityError


class Right(Workflow):
    """Asks once; a second turn asks again where the first answer does not hold the truth."""

    can_reset = True

    def __init__(self, *, task, model, auxiliary_models=None):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.reset(task)

    def reset(self, task):
        self.task = task
        self.messages = [{"role": "user", "content": task.task_desc}]

    def run(self):
        experiences = self.model.chat(self.messages, n=1, temperature=1.0)
        for experience in experiences:
            experience.reward = self.score(experience.response_text)
        return experiences

    def score(self, text):
        return float(str(self.task.truth) in text)


class RightAsync(Right):
    """Awaits the model."""

    async def run_async(self):
        experiences = await self.model.chat_async(self.messages, n=1, temperature=1.0)
        for experience in experiences:
            experience.reward = self.score(experience.response_text)
        return experiences


class TokenisesAgain(Right):
    """Tokenises the text of the answer."""

    def run(self):
        from trinity_testing.engines import script_tokenizer

        tokenizer = script_tokenizer()
        made = []
        for experience in super().run():
            prompt = experience.tokens[: experience.prompt_length].tolist()
            response = tokenizer.encode(experience.response_text, add_special_tokens=False)
            made.append(
                Experience(
                    tokens=[*prompt, *response],
                    prompt_length=len(prompt),
                    logprobs=[-0.5] * len(response),
                    reward=experience.reward,
                )
            )
        return made


class MakesUpLogprobs(Right):
    """Replaces the log-probabilities."""

    def run(self):
        experiences = super().run()
        for experience in experiences:
            experience.logprobs = experience.logprobs * 0.5
        return experiences


class HidesFailures(Right):
    """Takes a failure for a wrong answer."""

    def run(self):
        try:
            return super().run()
        except TrinityError:
            return [Experience(tokens=[1, 2], prompt_length=1, logprobs=[0.0], reward=0.0)]


class WrapsFailures(Right):
    """Raises an error that nobody can tell from a mistake of its own."""

    def run(self):
        try:
            return super().run()
        except TrinityError as error:
            raise KeyError("no answer") from error


class Remembers(Right):
    """Keeps the first task's question after a reset."""

    def reset(self, task):
        self.task = task
        if not hasattr(self, "messages"):
            self.messages = [{"role": "user", "content": task.task_desc}]


class SharesState(Right):
    """Keeps the task in the class."""

    shared: ClassVar = {}

    def run(self):
        self.shared["truth"] = self.task.truth
        return super().run()

    def score(self, text):
        return float(str(self.shared["truth"]) in text)


class LeavesAThread(Right):
    """Starts a thread in each run and leaves it."""

    def run(self):
        threading.Thread(target=threading.Event().wait, args=(30,), daemon=True).start()
        return super().run()


class LeavesAFile(Right):
    """Opens a file in each run and leaves it."""

    held: ClassVar = []

    def run(self):
        self.held.append(tempfile.TemporaryFile())  # noqa: SIM115
        return super().run()


class DrawsAtRandom(Right):
    """Adds chance to the reward."""

    def score(self, text):
        return random.random()


class ChangesItsTask(Right):
    """Takes the question out of the row, which the next run of the task misses."""

    def run(self):
        experiences = super().run()
        self.task.raw_task.pop("question")
        return experiences


class ReturnsNothing(Right):
    """Forgets its return."""

    def run(self):
        super().run()


class RewardsNaN(Right):
    """Rewards with NaN."""

    def score(self, text):
        return float("nan")


class ChangesLengths(Right):
    """Cuts the log-probabilities after the experience was made."""

    def run(self):
        experiences = super().run()
        for experience in experiences:
            experience.logprobs = experience.logprobs[:-1]
        return experiences


class RepeatsTwice(Right):
    """Asks for two samples whatever it is told."""

    can_repeat = True

    def run(self):
        experiences = self.model.chat(self.messages, n=2, temperature=1.0)
        for experience in experiences:
            experience.reward = self.score(experience.response_text)
        return experiences


class RightMultiTurn(Right):
    """Goes on talking, and trains on the whole conversation."""

    num_turns = 3

    def run(self):
        messages = list(self.messages)
        for _ in range(self.num_turns):
            (reply,) = self.model.chat(messages)
            messages.append({"role": "assistant", "content": reply.response_text})
            messages.append({"role": "user", "content": "Are you sure?"})
        experience = self.model.convert_messages_to_experience(messages[:-1])
        experience.reward = self.score(experience.response_text or "")
        return [experience]


class RendersAgain(RightMultiTurn):
    """Trains on the last reply after a history that it rendered and tokenised whole."""

    def run(self):
        from trinity_testing.scripted_model import script_chat_format

        (experience,) = super().run()
        chat_format = script_chat_format()
        text = chat_format.decode(experience.tokens.tolist(), skip_special_tokens=False)
        tokens = chat_format.encode(text)
        return [
            Experience(
                tokens=tokens,
                prompt_length=5,
                logprobs=[-0.5] * (len(tokens) - 5),
                reward=experience.reward,
            )
        ]


class NeedsAUrl(Right):
    """Needs an extra argument, which no run gives."""

    def __init__(self, *, task, model, auxiliary_models=None, url):
        """Take the address ``url`` too."""
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)


class HasNoRun(Workflow):
    """Forgets the method that a workflow is there for."""
