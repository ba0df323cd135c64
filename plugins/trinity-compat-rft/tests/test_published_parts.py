"""Parts that were written against Trinity-RFT's import paths run as they are."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from trinity.buffer.task_source import TaskSource
from trinity.common.batch import ExperienceBatch
from trinity.common.config import Config, DataSelectorConfig, FormatConfig, TasksetConfig
from trinity.common.experience import EID, Experience
from trinity.common.ports import RowValues
from trinity.errors import NotSupportedYetError
from trinity.extend import PluginManager
from trinity_compat_rft.paths.selectors import DataSource
from trinity_compat_rft.workflows.lake import random_map
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import scripted_model
from trinity_testing.tiny import make_tiny_model

PAGE = Path(__file__).parents[3] / "docs/how-to/come-from-trinity-rft.md"


def test_the_import_lines_of_the_migration_page_work():
    lines = re.findall(r"^(?:from|import) trinity\S* ?.*$", PAGE.read_text(), re.MULTILINE)

    assert len(lines) > 10
    for line in lines:
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

    rewards = enumerate((None, 0.5, 0.0, 1.0, 0.0, 1.0))
    rows = [Experience(tokens=[1, 2], reward=r, response_text=f"{n}: {r}") for n, r in rewards]

    assert [s["response"] for s in representative_sample(rows)] == ["2: 0.0", "3: 1.0"]
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


def test_a_lake_of_the_published_helpers_is_the_one_that_the_workflow_walks_on():
    from trinity.common.workflows.envs.frozen_lake.utils import (
        generate_random_map,
        get_goal_position,
        is_valid,
    )

    rows, goal = generate_random_map(size=4, p=0.7, seed=3, max_steps=6)

    assert rows == random_map(size=4, p=0.7, seed=3, max_steps=6)
    assert rows[goal[0]][goal[1]] == "G"
    assert get_goal_position(np.asarray(rows, dtype="c")) == goal
    assert get_goal_position(np.asarray(["SF"], dtype="c")) is None
    assert is_valid([["S", "G"], ["H", "H"]], 2, 4)
    assert not is_valid([["S", "H"], ["H", "G"]], 2, 4)


def test_mathematics_is_parsed_and_compared_where_it_can_be_ended():
    from trinity.common.rewards.eval_utils import parse_with_timeout, verify_with_timeout

    half, quarter = parse_with_timeout(r"$\frac{1}{2}$"), parse_with_timeout("$0.25$")

    assert verify_with_timeout(half, parse_with_timeout("$0.5$"))
    assert not verify_with_timeout(half, quarter)
    with pytest.raises(TimeoutError, match="parse of math_verify"):
        parse_with_timeout("$" + "9^" * 5 + "{9}" + "$", parsing_timeout=1e-6)


def test_an_answer_is_scored_as_the_reward_of_dapo_does():
    from trinity.common.rewards.naive_dapo_score import compute_score

    assert compute_score("<think>2</think> Answer: 46", "46") == (1.0, "46")
    assert compute_score(r"\boxed{\frac{1}{2}}", "0.25") == (0.0, r"\frac{1}{2}")


def test_published_names_are_the_parts_that_a_configuration_names():
    from trinity.algorithm.entropy_loss_fn import ENTROPY_LOSS_FN
    from trinity.algorithm.entropy_loss_fn.entropy_loss_fn import DummyEntropyLossFn
    from trinity.algorithm.kl_fn import KL_FN
    from trinity.algorithm.kl_fn.kl_fn import K1Fn, KLFn
    from trinity.buffer.operators import EXPERIENCE_OPERATORS
    from trinity.buffer.operators.filters.reward_filter import RewardFilter, RewardSTDFilter
    from trinity.buffer.operators.mappers.pass_rate_calculator import PassRateCalculator
    from trinity.buffer.operators.mappers.reward_shaping_mapper import RewardShapingMapper

    named = {
        "pass_rate_calculator": PassRateCalculator,
        "reward_filter": RewardFilter,
        "reward_shaping_mapper": RewardShapingMapper,
        "reward_std_filter": RewardSTDFilter,
    }
    assert {name: EXPERIENCE_OPERATORS.get(name) for name in named} == named
    assert ENTROPY_LOSS_FN.get("none") is DummyEntropyLossFn
    assert KL_FN.get("k1") is K1Fn
    assert issubclass(K1Fn, KLFn)


def test_a_selector_of_the_published_shape_chooses_the_tasks_and_hears_how_they_went(tmp_path):
    from trinity.buffer.selector import SELECTORS, BaseSelector

    @SELECTORS.register_module("the_largest")
    class TheLargest(BaseSelector):
        def __init__(self, data_source, config):
            super().__init__(data_source, config)
            (key,) = config.feature_keys
            self.values = torch.tensor(data_source.dataset[key])
            self.sign = config.kwargs.get("sign", 1)

        def get_indices(self, batch_size, return_extra_info=False):
            return torch.topk(self.sign * self.values, batch_size).indices

        def feedback(self, indices, values):
            self.values[indices] = torch.tensor(values)

        def state_dict(self):
            return {"values": self.values.tolist()}

        def load_state_dict(self, state_dict):
            self.values = torch.tensor(state_dict["values"])

    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"prompt": "{n}", "rate": {n / 10}}}\n' for n in range(3)))
    config = Config()
    chosen = DataSelectorConfig(selector_type="the_largest", feature_keys=["rate"])
    chosen.kwargs = {"sign": -1}
    config.buffer.explorer_input.tasksets = [TasksetConfig(path=str(path), data_selector=chosen)]
    tasks = TaskSource(config)

    first = [task.raw_task["prompt"] for task in tasks.read(2)]
    tasks.feedback({"0": RowValues(indices=[0], values=[0.9])})

    assert first == ["0", "1"]  # the smallest rates: the sign is turned
    assert [task.raw_task["prompt"] for task in tasks.read(1)] == ["1"]
    assert TheLargest(DataSource(1, {"a": [0.5]}), DataSelectorConfig(feature_keys=["a"]))


def test_an_estimator_of_pass_rates_is_asked_as_published():
    from trinity.buffer.selector.difficulty_estimator import InterpolationBetaPREstimator

    estimator = InterpolationBetaPREstimator(np.array([[0.0, 1.0]] * 2), m=4, lamb=0.0, rho=0.0)
    estimator.update([1], [0.75])

    # Beta(1, 1) and four tries, three of them passed: Beta(4, 2)
    assert estimator.predict_pr().tolist() == pytest.approx([0.5, 4 / 6])
    assert estimator.predict_pr(indices=[1]).tolist() == pytest.approx([4 / 6])
    assert estimator.equivalent_count().tolist() == [2.0, 6.0]
    drawn = [
        estimator.predict_pr(np.random.default_rng(3), do_sample=True).tolist() for _ in range(2)
    ]
    assert drawn[0] == drawn[1]


@pytest.fixture
def explored_once(tmp_path):
    """Return the settings of an exploration of one task."""
    (tmp_path / "rows.jsonl").write_text('{"question": "40 + 6?", "answer": "46"}\n' * 2)
    config = Config(checkpoint_root_dir=str(tmp_path), mode="explore")
    config.model.model_path = str(make_tiny_model(tmp_path / "tiny"))
    config.model.max_model_len, config.model.max_response_tokens = 128, 4
    config.buffer.batch_size, config.buffer.total_steps = 1, 1
    config.buffer.explorer_input.taskset = TasksetConfig(
        path=str(tmp_path / "rows.jsonl"),
        format=FormatConfig(prompt_key="question", response_key="answer"),
    )
    config.buffer.explorer_input.default_workflow_type = "math_workflow"
    return config.check_and_update()


@pytest.mark.acceptance
def test_a_run_is_started_from_python_as_the_tuner_does_without_ray_where_that_is_chosen(
    explored_once,
):
    from trinity.cli.launcher import run_stage, without_ray

    with without_ray():
        status = run_stage(config=explored_once)

    assert (status.stage, status.success) == ("explore", True)
    assert status.total_time_sec > 0


@pytest.mark.ray
@pytest.mark.acceptance
def test_a_run_that_is_started_from_python_goes_over_ray(explored_once):
    import ray
    from trinity.cli.launcher import run_stage

    was_connected = ray.is_initialized()
    status = run_stage(config=explored_once)

    assert (status.stage, status.success) == ("explore", True)
    assert ray.is_initialized() == was_connected


def test_what_starts_ray_on_many_machines_says_how_to_do_it_by_hand():
    from trinity.utils.dlc_utils import setup_ray_cluster, stop_ray_cluster

    with pytest.raises(NotSupportedYetError, match="ray start --head"):
        setup_ray_cluster("agentscope")
    with pytest.raises(NotSupportedYetError, match="ray stop"):
        stop_ray_cluster("agentscope")


ADVANTAGE = """
from verl import DataProto
from trinity.algorithm.advantage_fn import AdvantageFn

class Mine(AdvantageFn):
    def __call__(self, exps: DataProto, **kwargs):
        return exps, {}
"""


def a_plugin_folder(folder: Path) -> type:
    """Return what a file of the folder finds as DataProto."""
    (folder / "mine.py").write_text(ADVANTAGE)
    manager = PluginManager.discover(plugin_dirs=[folder])
    record = next(record for record in manager.records if record.name == "mine")
    assert record.is_usable, record.message
    return importlib.import_module(record.module).DataProto


def test_a_file_that_names_verls_batch_gets_ours_and_nobody_else_thinks_verl_is_there(tmp_path):
    assert a_plugin_folder(tmp_path) is ExperienceBatch
    assert "verl" not in sys.modules
    assert importlib.util.find_spec("verl") is None


def test_a_file_that_names_verls_batch_gets_that_of_an_installed_verl(tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "verl.py").write_text("class DataProto: pass")
    (tmp_path / "parts").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setitem(sys.modules, "verl", None)
    del sys.modules["verl"]

    assert a_plugin_folder(tmp_path / "parts").__module__ == "verl"
