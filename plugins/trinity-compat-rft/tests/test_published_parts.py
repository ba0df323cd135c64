"""Parts that were written against Trinity-RFT's import paths run as they are."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import torch
from trinity.common.experience import EID, Experience
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import scripted_model

PAGE = Path(__file__).parents[3] / "docs/how-to/come-from-trinity-rft.md"


def import_lines():
    return re.findall(r"^(?:from|import) trinity\S* ?.*$", PAGE.read_text(), re.MULTILINE)


def test_the_page_prints_import_lines():
    assert len(import_lines()) > 10


@pytest.mark.parametrize("line", import_lines())
def test_an_import_line_of_the_migration_page_works(line):
    exec(line, {})


def test_a_group_advantage_of_the_published_shape_runs():
    from trinity.algorithm.advantage_fn import ADVANTAGE_FN, GroupAdvantage
    from trinity.common.experience import group_by

    @ADVANTAGE_FN.register_module("less_the_mean")
    class LessTheMean(GroupAdvantage):
        def group_experiences(self, exps):
            return group_by(exps, id_type="task")

        def calculate_group_advantage(self, group_id, exps):
            mean = sum(exp.reward for exp in exps) / len(exps)
            for exp in exps:
                exp.advantages = (exp.reward - mean) * torch.ones(exp.response_length)
            return exps, {"reward_mean": mean}

        @classmethod
        def default_args(cls):
            return {}

    rows = [
        Experience(tokens=[1, 2], reward=reward, eid=EID(task=task))
        for task, reward in [(0, 1.0), (1, 0.0), (0, 0.0)]
    ]
    kept, metrics = ADVANTAGE_FN.get("less_the_mean")()(rows)

    assert [exp.advantages.tolist() for exp in kept] == [[0.5], [-0.5], [0.0]]
    assert metrics["group_advantages/reward_mean/mean"] == 0.25
    assert ADVANTAGE_FN.get("less_the_mean")()([]) == ([], {})


def test_a_loss_of_the_published_shape_runs():
    from trinity.algorithm.policy_loss_fn.policy_loss_fn import PolicyLossFn
    from trinity.algorithm.policy_loss_fn.sft_loss import SFTLossFn
    from trinity.algorithm.utils import aggregate_loss

    class Plain(PolicyLossFn):
        def __init__(self, backend: str = "verl") -> None:
            super().__init__(backend=backend)
            self.inner = SFTLossFn()

        def __call__(self, logprob, action_mask, **kwargs):
            return aggregate_loss(-logprob, action_mask), self.inner(logprob, action_mask)[1]

        @classmethod
        def default_args(cls):
            return {}

    loss, metrics = Plain()(log_prob=torch.full((1, 2), -2.0), response_mask=torch.ones(1, 2))

    assert float(loss) == pytest.approx(2.0)
    assert metrics["sft_loss"] == pytest.approx(2.0)


@pytest.mark.parametrize("kind", ["Step", "Run"])
def test_a_step_wise_workflow_with_async_names_runs(kind):
    from trinity.common.workflows.step_wise_workflow import (
        AsyncRewardPropagationWorkflow,
        AsyncStepWiseRewardWorkflow,
    )

    class Steps:
        async def step_async(self, step_num):
            await self.model.chat_async([{"role": "user", "content": "go"}])
            return step_num < 1

    class OfSteps(Steps, AsyncStepWiseRewardWorkflow):
        async def reward_async(self, exps, step_num):
            return float(step_num)

    class OfRuns(Steps, AsyncRewardPropagationWorkflow):
        async def reward_async(self, exps):
            return 7.0

    cls = {"Step": OfSteps, "Run": OfRuns}[kind]
    workflow = cls(task=a_task(), model=scripted_model("a", "b"))

    rewards = [exp.reward for exp in asyncio.run(workflow.run_async())]

    assert workflow.asynchronous
    assert rewards == ([0.0, 1.0] if kind == "Step" else [7.0, 7.0])


def test_a_step_wise_workflow_may_say_that_it_wants_no_openai_client():
    from trinity.common.workflows.step_wise_workflow import RewardPropagationWorkflow

    class Once(RewardPropagationWorkflow):
        def __init__(self, model, task, auxiliary_models=None, use_openai_client=False):
            super().__init__(
                model=model,
                task=task,
                auxiliary_models=auxiliary_models,
                use_openai_client=use_openai_client,
            )

        def step(self, step_num):
            self.model.chat([{"role": "user", "content": "go"}])
            return False

        def reward(self, exps):
            return 1.0

    workflow = Once(model=scripted_model("a"), task=a_task())

    assert workflow.client is None
    assert [exp.reward for exp in workflow.run()] == [1.0]


def test_an_answer_is_found_and_judged():
    from trinity.common.rewards.eval_utils import (
        compute_score_v0,
        evaluate_equation,
        find_boxed_answer,
        simple_answer_parser,
    )
    from trinity.common.rewards.qwen25_eval import verify_math_answer

    assert find_boxed_answer(r"so \boxed{2} or \boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert compute_score_v0(r"\boxed{4}", r"\boxed{4}") == compute_score_v0(r"\boxed{4}", "4") == 1
    assert compute_score_v0("4", "4") == 0.0
    assert simple_answer_parser("no tags") == "no tags"
    assert evaluate_equation("-(1 + 2) / 2") == -1.5
    assert evaluate_equation("__import__('os')") is None
    score, details = verify_math_answer(r"\boxed{4}", "4")
    assert (score, details["is_correct"]) == (1.0, True)


def test_the_lowest_and_the_highest_reward_are_shown():
    from trinity.algorithm.sample_strategy.utils import representative_sample

    rows = [Experience(tokens=[1, 2], reward=r, response_text=str(r)) for r in (0.5, 0.0, 1.0)]

    assert [sample["reward"] for sample in representative_sample(rows)] == [0.0, 1.0]
    assert representative_sample([Experience(tokens=[1, 2], response_text="a")]) == [
        {"prompt": None, "response": "a"}
    ]
    assert representative_sample([]) == []


def test_names_of_fields_are_translated():
    from trinity.algorithm.key_mapper import ALL_MAPPERS

    verl = ALL_MAPPERS["verl"]

    assert verl.to_trinity("old_log_probs") == "old_logprob"
    assert verl.from_trinity("action_mask") == "response_mask"
    assert verl.to_trinity("advantages") == "advantages"
