"""000 and 001: the household, as the guides name its parts, over an environment without engine."""

from __future__ import annotations

import importlib
import sys

import pytest
from trinity.common.config import FormatConfig
from trinity.common.workflows import WORKFLOWS, Task
from trinity.common.workflows.step_wise_workflow import RewardPropagationWorkflow
from trinity.extend import PluginManager, set_manager
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

alfworld = pytest.importorskip("trinity_envs_alfworld")
MODULE = "trinity.common.workflows.envs.alfworld.alfworld_workflow"
GO = "<think>There it may be.</think>\n<action>go to desk 1</action>"


class House:
    """Won by the third action, if nobody breaks it."""

    def __init__(self):
        self.num_resets = self.num_closed = 0
        self.actions = []

    def reset(self):
        self.num_resets += 1
        self.actions = []
        return "You are in a room.", {}

    def step(self, action):
        if action == "break":
            raise RuntimeError("it broke")
        self.actions.append(action)
        return f"You did {action}.", 1.0, len(self.actions) == 3, {}

    def close(self):
        self.num_closed += 1


def task_of(cls, **args):
    return Task(
        workflow=cls,
        raw_task={"game_file": "train/a-game/game.tw-pddl"},
        format_args=FormatConfig(prompt_key="game_file"),
        workflow_args=args,
    )


def made(cls, *answers, **args):
    engine = ScriptedEngine(*(answers or (GO,)), repeat=True)
    return cls(task=task_of(cls, **args), model=model_over(engine))


@pytest.fixture
def classes():
    """Return the module that the guide names."""
    return importlib.import_module(MODULE)


@pytest.fixture
def house(monkeypatch):
    """Return the environment that the plugin's workflows find instead of a game."""
    found = House()
    for module in ("workflow", "step_wise"):
        monkeypatch.setattr(f"trinity_envs_alfworld.{module}.environment_of", lambda task: found)
    return found


@pytest.fixture
def no_plugins():
    """Show the tests a place where no plugin is installed."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if ".workflows.envs" in name}
    before = set_manager(PluginManager.discover(env={}, entry_points=[]))
    yield
    set_manager(before)
    sys.modules.update(kept)


def test_P008_steps_written_as_in_the_guide_play_one_game(classes) -> None:
    class StepWise(RewardPropagationWorkflow):
        """In other words than the guide's."""

        def __init__(self, **given):
            super().__init__(**given)
            self.env, self.memory = House(), []
            self.observation, self.done, self.final_reward = self.env.reset()[0], False, -0.1

        def step(self, step_num):
            if self.done:
                return False
            seen = classes.format_observation(self.observation)
            self.memory.append({"role": "user", "content": seen})
            text = self.model.chat(self.memory)[0].response_text
            self.memory.append({"role": "assistant", "content": text})
            self.observation, reward, self.done, _ = self.env.step(classes.parse_action(text))
            self.final_reward = reward if self.done else self.final_reward
            return not self.done

        def reward(self, exps):
            return self.final_reward

    workflow = made(StepWise)
    experiences = workflow.run()

    assert [(e.eid.step, e.reward) for e in experiences] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert workflow.env.actions == ["go to desk 1"] * 3


def test_P008_and_P010_the_plugins_own_class_plays_the_same_game(house) -> None:
    cls = WORKFLOWS.get("step_wise_alfworld_workflow")

    experiences = made(cls).run()

    assert [(e.eid.step, e.reward) for e in experiences] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    assert house.actions == ["go to desk 1"] * 3
    assert house.num_closed == 1


def test_P009_the_two_helpers_stand_beside_the_workflow(classes) -> None:
    assert "You see a desk 1." in classes.format_observation("You see a desk 1.")
    assert classes.parse_action(GO) == "go to desk 1"
    assert classes.parse_action("I do not know.") == ""
    assert classes.parse_action("<action>go") == ""


def test_P031_the_workflow_is_listed_with_its_wheel(trinity) -> None:
    listed = trinity("plugins", "list", "--kind", "workflow").stdout

    [line] = [line for line in listed.splitlines() if "trinity-envs-alfworld" in line]
    assert {"alfworld_workflow", "step_wise_alfworld_workflow"} <= set(
        line.replace(",", " ").split()
    )


def test_P039_and_P045_the_class_is_imported_from_the_published_places(classes) -> None:
    from trinity.common import workflows

    assert classes.AlfworldWorkflow is workflows.AlfworldWorkflow
    assert classes.AlfworldWorkflow is WORKFLOWS.get("alfworld_workflow")
    assert classes.AlfWORLD_SYSTEM_PROMPT


def test_P112_the_step_wise_class_is_imported_from_the_published_place() -> None:
    from trinity.common.workflows import step_wise_workflow

    path = "trinity.common.workflows.step_wise_workflow.StepWiseAlfworldWorkflow"
    assert WORKFLOWS.get("step_wise_alfworld_workflow") is (
        step_wise_workflow.StepWiseAlfworldWorkflow
    )
    later = importlib.import_module("trinity.common.workflows.envs.alfworld.alfworld_workflow")
    assert later.StepWiseAlfworldWorkflow is step_wise_workflow.StepWiseAlfworldWorkflow
    assert WORKFLOWS.get(f"{later.__name__}.StepWiseAlfworldWorkflow") is (
        step_wise_workflow.StepWiseAlfworldWorkflow
    )
    assert WORKFLOWS.get(path) is step_wise_workflow.StepWiseAlfworldWorkflow


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("trinity.common.workflows", "AlfworldWorkflow"),
        ("trinity.common.workflows.step_wise_workflow", "StepWiseAlfworldWorkflow"),
        (MODULE, "AlfworldWorkflow"),
    ],
)
def test_P039_P045_and_P112_without_the_plugin_the_import_names_the_pip_line(
    module, name, no_plugins
) -> None:
    with pytest.raises(ImportError, match="pip install trinity-envs-alfworld"):
        getattr(importlib.import_module(module), name)


def test_P041_unfinished_gives_a_tenth_off_and_the_environment_is_closed_once(classes) -> None:
    house = House()

    [experience] = made(classes.AlfworldWorkflow, max_env_steps=2).generate_env_inference_samples(
        house, 1
    )

    assert experience.reward == pytest.approx(-0.1)
    assert (experience.metrics["env_rounds"], experience.metrics["env_done"]) == (1.0, 0.0)
    assert house.num_closed == 1
    assert experience.messages[0] == {"role": "system", "content": classes.AlfWORLD_SYSTEM_PROMPT}


def test_P043_run_plays_the_rows_game_repeat_times(classes, house, monkeypatch) -> None:
    workflow = made(classes.AlfworldWorkflow)
    workflow.set_repeat_times(3, 0)

    experiences = workflow.run()

    assert workflow.task_desc == "train/a-game/game.tw-pddl"
    assert [e.reward for e in experiences] == [1.0] * 3
    assert (house.num_resets, house.num_closed) == (3, 1)


def test_P126_one_environment_serves_all_runs_and_is_closed_also_when_one_raises(classes) -> None:
    whole, broken = House(), House()

    made(classes.AlfworldWorkflow).generate_env_inference_samples(whole, 4)
    with pytest.raises(RuntimeError, match="it broke"):
        made(classes.AlfworldWorkflow, "<action>break</action>").generate_env_inference_samples(
            broken, 4
        )

    assert (whole.num_resets, whole.num_closed) == (4, 1)
    assert (broken.num_resets, broken.num_closed) == (1, 1)


def test_P127_rebuilt_lists_keep_the_engines_tokens_in_the_plugins_class(classes) -> None:
    from trinity_testing.checks.sampled_tokens import not_as_sampled

    engine = ScriptedEngine(f"{GO} é", "<action>look</action>\n\n", GO)
    workflow = classes.AlfworldWorkflow(
        task=task_of(classes.AlfworldWorkflow), model=model_over(engine)
    )

    experiences = workflow.generate_env_inference_samples(House(), 1)

    assert not_as_sampled(experiences, engine.exchanges) == ""
