"""Score kept rollouts with another reward function, and compute their advantages anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trinity.algorithm import ADVANTAGE_FN
from trinity.algorithm.advantage_fn import apply_advantage
from trinity.algorithm.advantage_fn.grpo import GRPOAdvantageFn
from trinity.common.batch import ExperienceBatch
from trinity.common.workflows import SimpleWorkflow
from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trinity.algorithm.advantage_fn import AdvantageFn
    from trinity.common.config import Config
    from trinity.common.experience import Experience

    from trinity_lab.kept_rollouts import Rollout


@dataclass(frozen=True, kw_only=True)
class Rescored:
    """A rollout with both rewards.

    Attributes:
        rollout: as the run kept it.
        scores: of the new reward function, by name; empty: it could not be judged.
        problem: why; empty: it was.
    """

    rollout: Rollout
    scores: Mapping[str, float]
    problem: str = ""

    @property
    def before(self) -> float:
        """Return the reward that the workflow gave; of several rows, the mean."""
        rewards = [row.reward for row in self.rollout.rows if row.reward is not None]
        return sum(rewards) / max(len(rewards), 1)

    @property
    def after(self) -> float:
        """Return the new one."""
        return sum(self.scores.values(), 0.0)


def rescored(
    rollouts: Sequence[Rollout],
    *,
    reward: str,
    arguments: Mapping[str, Any],
    text: Callable[[Experience], str],
    parallel: int,
) -> list[Rescored]:
    """Return each rollout with its new scores, in order.

    A rollout gets the score of its last response, as a workflow of one turn scores it.

    Args:
        rollouts: of a run.
        reward: the name of a reward function.
        arguments: ``reward_fn_args`` (Any: yaml).
        text: reads the response of a row that was kept without it.
        parallel: calls at a time; a judge behind an API answers many at once.
    """

    def one(rollout: Rollout) -> Rescored:
        last = rollout.last
        if last.response_text is None:
            last = replace(last, response_text=text(last))
        task = replace(rollout.task, reward_fn=reward, reward_fn_args=dict(arguments))
        # The model is only asked for rollouts, of which there are none.
        scorer = SimpleWorkflow(task=task, model=None)  # type: ignore[arg-type]
        try:
            return Rescored(rollout=rollout, scores=scorer.reward_scores(last))
        except TrinityError as error:
            return Rescored(rollout=rollout, scores={}, problem=str(error))

    with ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="rescore") as pool:
        return list(pool.map(one, rollouts))


@dataclass(frozen=True, kw_only=True)
class Advantages:
    """How advantages are computed from the rewards of a run.

    Attributes:
        name: of the function.
        function: called with the rows of an explore step.
        is_of_run: whether it is the run's own; one that needs the trainer's model is stood in for
            by GRPO's.
    """

    name: str
    function: AdvantageFn
    is_of_run: bool

    @classmethod
    def of(cls, config: Config) -> Advantages:
        """Return those of a run."""
        name = config.algorithm.advantage_fn or ""
        found = ADVANTAGE_FN.get(name) if name else None
        if found is None or found.compute_in_trainer():
            return cls(name="grpo", function=GRPOAdvantageFn(), is_of_run=False)
        function = found(**(config.algorithm.advantage_fn_args or {}))
        return cls(name=name, function=function, is_of_run=True)

    def rows(self, scored: Sequence[Rescored], *, is_new: bool) -> list[Experience]:
        """Return rows with rewards and advantages, step by step; some functions drop rows."""
        found = []
        for _, step in groupby(scored, key=lambda one: one.rollout.last.eid.batch):
            rows = [row for one in step for row in _rewarded(one, is_new=is_new)]
            batch, _ = apply_advantage(self.function, ExperienceBatch.from_experiences(rows))
            found += batch.write_back()
        return found


def _rewarded(one: Rescored, *, is_new: bool) -> list[Experience]:
    """Return the rows of a rollout as new experiences with a reward, and no advantages."""
    reward = one.after if is_new else one.before
    empty = {"advantages": None, "returns": None, "token_level_reward": None}
    if not is_new:
        return [replace(row, reward=reward, **empty) for row in one.rollout.rows]
    return [
        replace(row, reward=reward, metrics=dict(one.scores), info=_noted(row), **empty)
        for row in one.rollout.rows
    ]


def _noted(row: Experience) -> dict[str, Any]:  # Any: the workflow's own data
    """Return the notes of a row without its policy version, which another run does not know."""
    info = {name: value for name, value in row.info.items() if name != "model_version"}
    before = {"reward": row.reward, "model_version": row.info.get("model_version")}
    return {**info, "rescored_from": before}
