"""000: the workflows of many steps, and what a run makes of them."""

from __future__ import annotations

import pytest
from trinity.common.experience import Experience
from trinity.common.workflows import WORKFLOWS, MultiTurnWorkflow
from trinity.common.workflows.step_wise_workflow import (
    RewardPropagationWorkflow,
    StepWiseRewardWorkflow,
)
from trinity.errors import ConfigError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


class Corridor:
    """Ends after as many moves as it is long."""

    def __init__(self, length):
        self.length, self.place, self.closed = length, 0, 0

    def reset(self):
        self.place = 0
        return "You see a door.", {}

    def step(self, action):
        self.place += 1
        return f"You did {action}.", float(self.place), self.place == self.length, {}

    def close(self):
        self.closed += 1


class StepWiseCorridor(RewardPropagationWorkflow):
    """Written as the guide writes its own, in other words."""

    def __init__(self, *, task, model, auxiliary_models=None):
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self.env = Corridor(task.workflow_args.get("length", 4))
        self.observation, _ = self.env.reset()
        self.memory, self.done, self.final_reward, self.asked = [], False, -0.1, []

    def step(self, step_num):
        self.asked.append(step_num)
        if self.done:
            return False
        self.memory.append({"role": "user", "content": self.observation})
        answers = self.model.chat(self.memory)
        said = answers[0].response_text
        self.memory.append({"role": "assistant", "content": said})
        self.observation, reward, self.done, _ = self.env.step(said)
        if self.done:
            self.final_reward = reward
        return not self.done

    def reward(self, exps):
        self.given = exps
        return self.final_reward


class CorridorInOne(MultiTurnWorkflow):
    def run(self):
        env = Corridor(4)
        observation, done = env.reset()[0], False
        memory = []
        while not done:
            memory = memory + [{"role": "user", "content": observation}]  # noqa: RUF005 - as published
            text = self.get_model_response_text(memory)
            memory.append({"role": "assistant", "content": text})
            observation, reward, done, _ = env.step(text)
        return [self.process_messages_to_experience(memory, reward, {})]


class ByStep(StepWiseRewardWorkflow):
    num_steps = 0

    def step(self, step_num):
        self.num_steps += 1
        self.model.chat([{"role": "user", "content": "go"}])
        return step_num < 3

    def reward(self, exps):
        return float(self.num_steps - 1)


def run_of(cls, **args):
    engine = ScriptedEngine("north", "south", repeat=True)
    workflow = cls(task=a_task(workflow=cls, workflow_args=args), model=model_over(engine))
    return workflow, workflow.run(), engine


def test_P001_each_step_is_an_experience_and_the_multi_turn_twin_gives_one() -> None:
    _, experiences, _ = run_of(StepWiseCorridor)
    _, one, _ = run_of(CorridorInOne)

    assert [e.eid.step for e in experiences] == [0, 1, 2, 3]
    assert len(one) == 1


def test_P002_each_step_carries_its_own_reward() -> None:
    assert [e.reward for e in run_of(ByStep)[1]] == [0.0, 1.0, 2.0, 3.0]


def test_P003_and_P006_the_reward_of_the_whole_run_is_in_every_step() -> None:
    workflow, experiences, _ = run_of(StepWiseCorridor)

    assert [e.reward for e in experiences] == [4.0] * 4
    assert workflow.given == experiences


def test_P004_the_published_module_holds_both_classes() -> None:
    assert StepWiseRewardWorkflow.__module__ == "trinity.common.workflows.step_wise_workflow"
    assert RewardPropagationWorkflow.__module__ == StepWiseRewardWorkflow.__module__


def test_P005_step_is_called_with_0_1_2_until_it_returns_false() -> None:
    assert run_of(StepWiseCorridor, length=3)[0].asked == [0, 1, 2]


def test_P007_run_returns_a_list_of_experiences() -> None:
    experiences = run_of(StepWiseCorridor)[1]

    assert isinstance(experiences, list)
    assert all(isinstance(e, Experience) for e in experiences)


def test_P011_all_steps_of_a_run_have_the_advantage_of_its_last(explored) -> None:
    from trinity.algorithm.advantage_fn.step_wise_grpo import StepWiseGRPOAdvantageFn
    from trinity.common.batch import ExperienceBatch

    got = explored(a_task(workflow=Ragged, repeat_times=3)).experiences
    batch, _ = StepWiseGRPOAdvantageFn()(ExperienceBatch.from_experiences(got))

    scores: dict[int, set[float]] = {}
    for experience in batch.write_back():
        scores.setdefault(experience.eid.run, set()).add(round(float(experience.advantages[0]), 4))
    assert scores == {0: {-1.0}, 1: {0.0}, 2: {1.0}}


class Ragged(StepWiseCorridor):
    """Run r is r + 1 steps long."""

    def set_repeat_times(self, repeat_times, run_id_base):
        super().set_repeat_times(repeat_times, run_id_base)
        self.env = Corridor(run_id_base + 1)


def test_P114_step_and_reward_alone_are_enough_and_max_step_num_has_a_default() -> None:
    class Endless(RewardPropagationWorkflow):
        def step(self, step_num):
            self.model.chat([{"role": "user", "content": "go"}])
            return True

        def reward(self, exps):
            return 1.0

    assert len(run_of(Endless)[1]) == 30
    assert len(run_of(Endless, max_env_steps=2)[1]) == 2


def test_P115_a_chat_made_inside_step_becomes_that_steps_experience() -> None:
    _, experiences, engine = run_of(StepWiseCorridor)

    for experience, exchange in zip(experiences, engine.exchanges, strict=True):
        said = exchange.completions[0]
        assert experience.tokens[experience.prompt_length :].tolist() == list(said.token_ids)
        assert experience.tokens[: experience.prompt_length].tolist() == list(
            exchange.request.prompt_token_ids
        )


def test_P116_runs_of_a_task_may_give_different_numbers_of_experiences(explored) -> None:
    got = explored(a_task(workflow=Ragged, repeat_times=4))

    assert [(e.eid.run, e.eid.step) for e in got.experiences] == [
        (run, step) for run in range(4) for step in range(run + 1)
    ]


@pytest.fixture
def steps_of_a_run(config_dict, taskset, a_process):
    """Return a configuration that trains the ragged runs."""
    WORKFLOWS.register_module("tutorial_ragged")(Ragged)
    taskset["default_workflow_type"] = "tutorial_ragged"
    taskset.pop("default_reward_fn_type")
    taskset["workflow_args"] = {"max_env_steps": 4}
    config_dict["algorithm"]["algorithm_type"] = "multi_step_grpo"
    config_dict["model"] |= {"max_model_len": 256}
    config_dict["explorer"]["rollout_model"] = {"enable_history": True}
    return config_dict


@pytest.mark.slow
def test_P024_a_run_without_the_history_stops_before_anything_starts(
    steps_of_a_run, run_it, golden, tmp_path
) -> None:
    steps_of_a_run["explorer"]["rollout_model"]["enable_history"] = False

    with pytest.raises(ConfigError) as caught:
        run_it()

    golden(str(caught.value), "config_without_history", TMP=tmp_path)
