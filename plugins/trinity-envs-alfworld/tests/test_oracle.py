"""The players that demonstrations are made of."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from trinity.common.config import FormatConfig
from trinity.common.workflows import Task
from trinity.errors import DataError
from trinity_envs_alfworld.env import create_environment
from trinity_envs_alfworld.games import TASK_TYPES, playable_games, task_type_of
from trinity_envs_alfworld.generate_things import Goal
from trinity_envs_alfworld.generate_write import write_games
from trinity_envs_alfworld.oracle import (
    SearchingPlayer,
    WalkthroughPlayer,
    conversation,
    goal_of,
    walkthrough_of,
)
from trinity_envs_alfworld.prompt import observation_with_commands
from trinity_envs_alfworld.workflow import AlfworldWorkflow
from trinity_testing.engines import ScriptedEngine, script_tokenizer
from trinity_testing.scripted_model import model_over

needs_alfworld = pytest.mark.skipif(find_spec("alfworld") is None, reason="pip install alfworld")


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    """Return the file of a game of each task type."""
    root = tmp_path_factory.mktemp("generated")
    write_games(root, count=6, seed=5, sizes=("tiny",), splits={"train": 1.0})
    return {task_type_of(file): file for file in playable_games(root, "train")}


def turns(goal, *said):
    """Return the commands that a searching player gives to texts with their commands."""
    player = SearchingPlayer(goal)
    return [player.turn(observation_with_commands(text, list(can)))[1] for text, *can in said]


ROOM = "You see a desk 1, a drawer 1, and a shelf 1.\n\nYour task is to: put a mug in desk."
MUG_TO_DESK = Goal(task_type=TASK_TYPES[0], item="Mug", place="Desk")


def test_it_looks_into_one_place_after_the_other_and_into_the_target_last():
    commands = turns(
        MUG_TO_DESK,
        (ROOM,),
        ("You arrive at drawer 1. The drawer 1 is closed.", "open drawer 1"),
        ("You open the drawer 1. The drawer 1 is open. In it, you see nothing.",),
        ("You arrive at shelf 1. On the shelf 1, you see a plate 1.", "take plate 1 from shelf 1"),
        ("You arrive at desk 1. On the desk 1, you see nothing.",),
    )

    assert commands == ["go to drawer 1", "open drawer 1", "go to shelf 1", "go to desk 1", "look"]


def test_it_takes_what_it_finds_and_brings_it():
    commands = turns(
        MUG_TO_DESK,
        (ROOM,),
        ("You arrive at drawer 1. On the drawer 1, you see a mug 2.", "take mug 2 from drawer 1"),
        ("You pick up the mug 2 from the drawer 1.", "move mug 2 to drawer 1"),
        ("You arrive at desk 1. On the desk 1, you see nothing.", "move mug 2 to desk 1"),
    )

    assert commands[1:] == ["take mug 2 from drawer 1", "go to desk 1", "move mug 2 to desk 1"]


@needs_alfworld
@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_both_players_win_a_game_of_each_task_type(task_type, games):
    game = games[task_type]
    env = create_environment(str(game))
    searched = conversation(env, SearchingPlayer(goal_of(game)))
    followed = conversation(env, WalkthroughPlayer(walkthrough_of(game)))
    env.close()

    assert searched.reward == followed.reward == 1.0
    assert len(walkthrough_of(game)) == followed.num_steps


@needs_alfworld
def test_a_demonstration_is_what_the_workflow_would_have_put_to_the_model(games):
    game = games["pick_and_place_simple"]
    env = create_environment(str(game))
    messages, reward, num_steps = conversation(env, SearchingPlayer(goal_of(game)))
    env.close()
    replies = [said["content"] for said in messages if said["role"] == "assistant"]
    engine = ScriptedEngine(*replies)
    task = Task(raw_task={"game_file": str(game)}, format_args=FormatConfig(prompt_key="game_file"))
    workflow = AlfworldWorkflow(task=task, model=model_over(engine), auxiliary_models=None)

    (experience,) = workflow.run()
    workflow.close()

    tokenizer = script_tokenizer()
    asked = tokenizer.decode([*engine.exchanges[-1].request.prompt_token_ids])
    expected = tokenizer.apply_chat_template(
        messages[:-1], tokenize=False, add_generation_prompt=True
    )
    assert asked == expected
    assert (experience.reward, len(engine.exchanges)) == (reward, num_steps)


def test_a_game_without_a_trajectory_or_walkthrough_is_named(tmp_path, golden):
    game = tmp_path / "game.tw-pddl"
    game.write_text("{}")

    with pytest.raises(DataError) as no_goal:
        goal_of(game)
    with pytest.raises(DataError) as no_walkthrough:
        walkthrough_of(game)
    golden(f"{no_goal.value}\n{no_walkthrough.value}", "alfworld_game_says_nothing", TMP=tmp_path)
