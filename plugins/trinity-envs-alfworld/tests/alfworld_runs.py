"""Runs of the workflows with models that need no weights."""

from __future__ import annotations

from trinity.common.config import FormatConfig
from trinity.common.workflows import Task
from trinity_envs_alfworld.step_wise import StepWiseAlfworldWorkflow
from trinity_envs_alfworld.workflow import AlfworldWorkflow
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over

BOTH = [AlfworldWorkflow, StepWiseAlfworldWorkflow]
GAME = "json_2.1.1/train/pick_and_place_simple-Mug-None-Desk-301/trial_T001/game.tw-pddl"


def saying(*commands):
    return [f"<think>I try.</think><action>{command}</action>" for command in commands]


def a_workflow(cls, engine, *, data, game=GAME, **arguments):
    task = Task(
        raw_task={"game_file": game, "target": ""},
        format_args=FormatConfig(prompt_key="game_file"),
        workflow_args={"data": str(data), **arguments},
    )
    return cls(task=task, model=model_over(engine), auxiliary_models=None)


def the_run(cls, *replies, data, **given):
    engine = ScriptedEngine(*replies, repeat=True)
    return a_workflow(cls, engine, data=data, **given).run(), engine


def prompt_of(engine, place):
    return engine.tokenizer.decode(list(engine.exchanges[place].request.prompt_token_ids))
