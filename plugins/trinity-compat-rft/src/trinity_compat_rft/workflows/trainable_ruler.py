"""Mathematical questions that the policy answers, and whose answers it judges itself.

answers ----> gold reward of each
   |
   +--> the policy judges them --> with the truth at hand (one task in five):
                                      answers are rewarded with gold, verdicts with their accuracy
                                   without: answers are rewarded with the verdict's scores
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from trinity.common.workflows import MathWorkflow

from trinity_compat_rft.judging import comparison, gold_reward, listed_scores

if TYPE_CHECKING:
    from trinity.common.experience import Experience

__all__ = ["MathTrainableRULERWorkflow"]

TRUTH_SHARE = 0.2  # of the tasks, in which the truth counts as known
LOWEST, RANGE = -0.1, 1.2  # of math_reward, which is scaled to [0, 1]


class MathTrainableRULERWorkflow(MathWorkflow):
    """The policy answers, then scores its own answers from 0 to 1.

    Where the truth counts as known, the verdicts are experiences too: a group of their own, the
    task's name with ``-ruler``, each rewarded with 1 less the mean distance of its scores from the
    gold scores, and with 0 where it holds no list. Which tasks those are is drawn from the names of
    batch and task.
    """

    def run(self) -> list[Experience]:
        """Return the answers, and with the truth at hand as many verdicts."""
        answers = self.model.chat(self.format_messages(), **self.rollout_args)
        gold = [self._gold(answer, place) for place, answer in enumerate(answers)]
        knows_truth = self._draw() < TRUTH_SHARE
        asked = comparison(self.task_desc, [answer.response_text or "" for answer in answers])
        count = self.repeat_times if knows_truth else 1
        verdicts = self.model.chat(asked, **{**self.rollout_args, "n": count})
        lists = [listed_scores(one.response_text or "", num=len(answers)) for one in verdicts]
        success = sum(scores is not None for scores in lists) / max(1, len(lists))
        rewards = gold if knows_truth else _means(lists, num=len(answers))
        for answer, reward in zip(answers, rewards, strict=True):
            answer.reward = reward
            answer.metrics["judge_success"] = success
        if not knows_truth:
            return answers
        self._reward_verdicts(verdicts, lists, gold=gold, success=success)
        return answers + verdicts

    def _gold(self, answer: Experience, place: int) -> float:
        answer.eid.task = str(self.task.task_id)
        answer.eid.run = self.run_id_base + place
        return gold_reward(answer, self.reward_scores(answer))

    def _reward_verdicts(
        self,
        verdicts: list[Experience],
        lists: list[list[float] | None],
        *,
        gold: list[float],
        success: float,
    ) -> None:
        scaled = [(reward - LOWEST) / RANGE for reward in gold]
        for place, (verdict, scores) in enumerate(zip(verdicts, lists, strict=True)):
            verdict.reward = 0.0 if scores is None else 1.0 - _distance(scores, scaled)
            verdict.metrics = {
                **(verdict.metrics or {}),
                "judge_success": success,
                "reward_for_judge": verdict.reward,
            }
            verdict.eid.task = f"{self.task.task_id}-ruler"
            verdict.eid.run = self.run_id_base + place

    def _draw(self) -> float:
        """Return a number in [0, 1) that is always the same for the task."""
        return random.Random(
            f"{self.task.batch_id}/{self.task.task_id}/{self.run_id_base}"
        ).random()


def _means(lists: list[list[float] | None], *, num: int) -> list[float]:
    """Return the mean score of each answer over the lists; 0 where there is none."""
    given = [scores for scores in lists if scores is not None]
    return [sum(column) / len(given) for column in zip(*given, strict=True)] or [0.0] * num


def _distance(scores: list[float], others: list[float]) -> float:
    return sum(abs(a - b) for a, b in zip(scores, others, strict=True)) / len(scores)
