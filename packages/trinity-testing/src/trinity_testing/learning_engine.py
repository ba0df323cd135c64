"""An engine that learns, without a model: it knows a few answers, and gets a liking for some.

>>> from trinity_testing.builders import a_task
>>> from trinity_testing.scripted_model import model_over
>>> from trinity_testing.text_world import COLOURS, TextWorldWorkflow
>>> engine = LearningEngine(COLOURS)
>>> task = a_task(raw_task={"seed": 3})
>>> returns = []
>>> for _ in range(60):
...     (experience,) = TextWorldWorkflow(task=task, model=model_over(engine)).run()
...     engine.learn([experience])
...     returns.append(experience.reward)
>>> sum(returns[:10]) / 10, sum(returns[-10:]) / 10
(0.3, 1.0)
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING

from trinity_testing.engines import AnsweringEngine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trinity.common.experience import Experience
    from trinity.common.ports import GenerationRequest

__all__ = ["LearningEngine"]


class LearningEngine(AnsweringEngine):
    """Draws each answer from a distribution of its own for each prompt; all are equal at first.

    :meth:`learn` makes the answers of good experiences likelier, by the policy gradient with the
    mean of the rewards so far as its baseline. For tests of workflows: does a better answer get a
    better reward, turn by turn? The log-probabilities are those of a scripted engine.

    Args:
        answers: what it can say.
        seed: of its draws.
        rate: how far one experience moves the preferences.
    """

    def __init__(self, answers: Sequence[str], *, seed: int = 0, rate: float = 2.0) -> None:
        super().__init__()
        self.answers = tuple(answers)
        self.rate = rate
        self._chance = random.Random(seed)
        self._preferences: dict[tuple[int, ...], list[float]] = defaultdict(
            lambda: [0.0] * len(self.answers)
        )
        self._said: list[tuple[tuple[int, ...], int]] = []  # since the last learn()
        self._baseline, self._num_learnt = 0.0, 0

    def answer(self, request: GenerationRequest) -> str:
        """Return an answer, drawn by what was learnt about this prompt."""
        prompt = request.prompt_token_ids
        place = self._chance.choices(range(len(self.answers)), self.probabilities(prompt))[0]
        self._said.append((prompt, place))
        return self.answers[place]

    def probabilities(self, prompt: tuple[int, ...]) -> list[float]:
        """Return how likely each answer to a prompt is."""
        weights = [math.exp(preference) for preference in self._preferences[prompt]]
        return [weight / sum(weights) for weight in weights]

    def learn(self, experiences: Iterable[Experience]) -> None:
        """Take the mean reward of these for that of all that was said since the last call."""
        rewards = [experience.reward or 0.0 for experience in experiences]
        if not rewards:
            return
        reward = sum(rewards) / len(rewards)
        advantage = reward - self._baseline
        self._num_learnt += 1
        self._baseline += advantage / self._num_learnt
        for prompt, said in self._said:
            for place, chance in enumerate(self.probabilities(prompt)):
                gradient = (place == said) - chance
                self._preferences[prompt][place] += self.rate * advantage * gradient
        self._said.clear()
