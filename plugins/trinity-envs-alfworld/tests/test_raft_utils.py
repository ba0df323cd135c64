"""The helpers that workflows written like the RAFT ones import by their published path."""

from __future__ import annotations

import asyncio
import importlib
import json

import pytest
from trinity.explorer.finish import finished
from trinity.explorer.requests import requests_of
from trinity_envs_alfworld.raft_prompt import RAFT_SYSTEM_PROMPT
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import scripted_model

RAFT_utils = importlib.import_module("trinity.common.workflows.envs.alfworld.RAFT_utils")
WHOLE = "<experience>e</experience> <think>t</think> <action>look</action>"


def test_the_texts_of_a_play_are_templates():
    texts = RAFT_utils.get_jinja_env()
    told = RAFT_utils.generate_reward_feedback(0.0, 50, False, 50)

    assert texts.get_template("alfworld_system.j2").render() == RAFT_SYSTEM_PROMPT.rstrip("\n")
    second = texts.get_template("second_attempt_guidance.j2").render(reward_feedback=told)
    assert "All 50 turns were used and the task was not done (reward: 0.000)." in second


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((1.0, 4, True, 50), "did the task in 4 turns"),
        ((0.5, 4, True, 50), "done in part at most"),
        ((0.0, 4, False, 50), "ended after 4 turns"),
    ],
)
def test_how_an_attempt_ended_is_said(arguments, said):
    assert said in RAFT_utils.generate_reward_feedback(*arguments)


def test_a_reply_has_three_parts_or_none():
    whole, torn = map(RAFT_utils.parse_response, (WHOLE, "<action>look</action>"))

    assert whole == {"experience": "e", "think": "t", "action": "look"}
    assert torn == {"experience": "", "think": "", "action": ""}
    assert RAFT_utils.validate_trajectory_format([whole])
    assert not RAFT_utils.validate_trajectory_format([whole, torn])


def test_a_game_is_played_by_its_file(data):
    env = RAFT_utils.create_alfworld_environment(str(next(data.rglob("game.tw-pddl"))))
    try:
        observation, _ = env.reset()
        seen, reward, is_done, info = env.step("dance")
    finally:
        env.close()

    assert "Your task is to" in observation
    assert (reward, is_done) == (0.0, False)
    assert "Nothing happens." in RAFT_utils.format_observation(seen)
    assert info["admissible_commands"]


def test_a_play_that_teaches_nothing_passes_the_checks_of_a_run():
    empty = RAFT_utils.generate_default_empty_experience("lost", metrics={"reward": 0.5})
    (request,) = requests_of(a_task(repeat_times=1), batch="0", number=0, max_repeat_times=None)

    (done,) = finished([empty], request=request, version=0)

    assert done.reward == 0.5
    assert done.info["error_reason"] == "lost"
    assert not done.action_mask.any()


def test_a_conversation_becomes_an_experience_with_its_numbers():
    model = scripted_model("look")
    asked = [{"role": "user", "content": "What now?"}]
    (reply,) = model.chat(asked)
    talk = [*asked, {"role": "assistant", "content": reply.response_text}]
    info = {"reward": 1.0, "steps": 3, "game": "a.tw-pddl"}

    one = asyncio.run(RAFT_utils.process_messages_to_experience_async(model, talk, info))

    assert (one.reward, one.metrics) == (1.0, {"reward": 1.0, "steps": 3.0})
    assert int(one.action_mask.sum()) == reply.response_length


def test_what_came_of_a_game_is_kept_in_a_file(tmp_path):
    play = [{"role": "user", "content": "é"}]

    for kept in (True, False):
        RAFT_utils.save_task_data(
            "7", "a.tw-pddl", play, 0.0, 3, False, play, 1.0, 2, True, kept,
            str(tmp_path / "sft"), str(tmp_path / "other"), training_data=play if kept else None,
        )  # fmt: skip

    kept, other = (json.loads((tmp_path / f / "7.json").read_text()) for f in ("sft", "other"))
    assert kept["second_exploration"] == {
        "trajectory": play,
        "reward": 1.0,
        "steps": 2,
        "success": True,
    }
    assert (kept["training_data"], other["training_data"]) == (play, "")
