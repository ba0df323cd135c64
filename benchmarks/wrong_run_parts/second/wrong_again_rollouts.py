"""Wrong workflows, rewards and task selectors."""

from __future__ import annotations

import copy
import time
from typing import Any, ClassVar

import torch
from trinity.buffer.selectors import SequentialSelector
from trinity.common.experience import EID
from trinity.common.rewards import RewardFn
from trinity.common.workflows.simple import SimpleWorkflow


class AnswersFromMemoryWorkflow(SimpleWorkflow):
    """Asks the model once for each question."""

    kept: ClassVar[dict[str, list[Any]]] = {}

    def run(self):
        key = str(self.task_desc)
        if key not in self.kept:
            self.kept[key] = copy.deepcopy(super().run())
        answers = copy.deepcopy(self.kept[key])
        for number, answer in enumerate(answers):
            answer.eid = EID(run=self.run_id_base + number)
        return answers


class AddsATokenWorkflow(SimpleWorkflow):
    """Ends each answer by the token 1."""

    def run(self):
        return [_longer(answer, torch.tensor([1]), torch.zeros(1)) for answer in super().run()]


class TrainsThePromptWorkflow(SimpleWorkflow):
    """Counts the prompt to the response."""

    def run(self):
        answers = super().run()
        for answer in answers:
            num_more = answer.prompt_length - 1
            answer.prompt_length = 1
            answer.logprobs = torch.cat([torch.zeros(num_more), answer.logprobs])
            answer.action_mask = torch.ones(len(answer.tokens) - 1, dtype=torch.bool)
        return answers


class HidesItsTemperatureWorkflow(SimpleWorkflow):
    """Samples colder than it says."""

    def run(self):
        options = self.rollout_args | {"temperature": 0.5}
        answers = self.score(self.model.chat(self.format_messages(), **options))
        for answer in answers:
            answer.temperature = 1.0
        return answers


class RotatesRewardsWorkflow(SimpleWorkflow):
    """Mixes up the rewards of one task."""

    def run(self):
        answers = super().run()
        rewards = [answer.reward for answer in answers]
        for answer, reward in zip(answers, rewards[-1:] + rewards[:-1], strict=True):
            answer.reward = reward
        return answers


class ShiftsLogprobsWorkflow(SimpleWorkflow):
    """Is off by one."""

    def run(self):
        answers = super().run()
        for answer in answers:
            answer.logprobs = answer.logprobs.roll(1)
        return answers


class BackdatesWorkflow(SimpleWorkflow):
    """Names weights that did not sample the answer."""

    def run(self):
        answers = super().run()
        for answer in answers:
            answer.info["model_version"] = max(0, (answer.info.get("model_version") or 0) - 3)
        return answers


class KeepsTheRewardedWorkflow(SimpleWorkflow):
    """Returns what was better than the worst, and one answer at least."""

    def run(self):
        answers = super().run()
        worst = min(one.reward for one in answers)
        return [one for one in answers if one.reward > worst] or answers[:1]


class JoinsAnswersWorkflow(SimpleWorkflow):
    """Makes one text of two."""

    def run(self):
        answers = super().run()
        parts = [(one.tokens[one.prompt_length :].clone(), one.logprobs.clone()) for one in answers]
        following = parts[1:] + parts[:1]
        return [_longer(one, *part) for one, part in zip(answers, following, strict=True)]


class PicksTheBestWorkflow(SimpleWorkflow):
    """Returns the better half of the answers."""

    def run(self):
        options = self.rollout_args | {"n": 2 * self.repeat_times}
        answers = self.score(self.model.chat(self.format_messages(), **options))
        answers.sort(key=lambda one: -one.reward)
        best = answers[: self.repeat_times]
        for number, answer in enumerate(best):
            answer.eid.run = self.run_id_base + number
        return best


def _longer(answer, tokens, logprobs):
    answer.tokens = torch.cat([answer.tokens, tokens])
    answer.logprobs = torch.cat([answer.logprobs, logprobs])
    mask = torch.ones(len(tokens), dtype=torch.bool)
    answer.action_mask = torch.cat([answer.action_mask, mask])
    return answer


class AsksTheClockRewardFn(RewardFn):
    """Depends on the time of day."""

    def __call__(self, *, response: str, **kwargs: Any) -> dict[str, float]:
        return {"accuracy": float(time.time_ns() // 1_000_000 % 2)}


class KeepsTheFirstTruthRewardFn(RewardFn):
    """Knows one answer to all questions."""

    def __init__(self) -> None:
        self.truth: str | None = None

    def __call__(self, *, response: str, truth: str | None = None, **kwargs: Any):
        self.truth = self.truth or truth
        return {"accuracy": float(len(response) % 3 + (str(self.truth) in response))}


class TiresRewardFn(RewardFn):
    """Gives nothing after a while."""

    num_calls = 0

    def __call__(self, *, response: str, **kwargs: Any) -> dict[str, float]:
        type(self).num_calls += 1
        return {"accuracy": float(len(response) % 3) if self.num_calls <= 40 else 0.0}


class MarksTheInfoRewardFn(RewardFn):
    """Leaves a note in what it was given."""

    def __call__(self, *, response: str, info: dict[str, Any] | None = None, **kwargs: Any):
        score = float(len(response) % 3)
        if info is not None:
            info["use_count"] = score
        return {"accuracy": score}


class IsFiniteInDoubleRewardFn(RewardFn):
    """Gives what a double holds and a float does not."""

    def __call__(self, *, response: str, **kwargs: Any) -> dict[str, float]:
        return {"accuracy": 1e300 if len(response) % 3 else 0.0}


class GivesFewerLaterTaskSelector(SequentialSelector):
    """Gives one row less than it should, later."""

    num_calls = 0

    def get_indices(self, count: int) -> list[int]:
        self.num_calls += 1
        return super().get_indices(count)[: count - (self.num_calls > 2)]


class LovesTheFirstRowTaskSelector(SequentialSelector):
    """Knows one row."""

    def get_indices(self, count: int) -> list[int]:
        return [0 for _ in super().get_indices(count)]


class SkipsTheLastRowTaskSelector(SequentialSelector):
    """Is off by one."""

    def __init__(self, num_rows: int, *, seed: int = 42) -> None:
        super().__init__(max(1, num_rows - 1), seed=seed)
