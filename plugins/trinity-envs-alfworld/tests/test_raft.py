"""The workflows that imitate what was won, in the real engine, with models that need no weights."""

from __future__ import annotations

import pytest
from alfworld_runs import a_workflow, prompt_of, the_run
from tiny_game import WALKTHROUGH
from trinity.errors import ConfigError, WorkflowError
from trinity_envs_alfworld.raft import Play, RAFTAlfworldWorkflow
from trinity_envs_alfworld.raft_prompt import observed, parse_response
from trinity_envs_alfworld.raft_reflect import RAFTReflectAlfworldWorkflow, without_first_attempt
from trinity_testing.engines import ScriptedEngine

BOTH = [RAFTAlfworldWorkflow, RAFTReflectAlfworldWorkflow]
LOST = ["look", "inventory", "look"]


def in_parts(*commands):
    return [
        f"<experience>e</experience>\n<think>t</think>\n<action>{command}</action>"
        for command in commands
    ]


def learned(experience, engine):
    mask = experience.action_mask.tolist()
    tokens = experience.tokens[experience.prompt_length :].tolist()
    own = [token for token, is_own in zip(tokens, mask, strict=True) if is_own]
    return engine.tokenizer.decode(own)


def told(experience, engine):
    return engine.tokenizer.decode(experience.tokens.tolist())


@pytest.mark.parametrize("cls", BOTH)
def test_a_game_that_is_won_at_once_is_learned_whole(cls, data):
    (one,), engine = the_run(cls, *in_parts(*WALKTHROUGH), data=data)

    assert len(engine.exchanges) == 4
    assert one.reward == 1.0
    said = [list(asked.completions[0].token_ids) for asked in engine.exchanges]
    assert int(one.action_mask.sum()) == sum(map(len, said))
    assert (one.metrics["success"], one.metrics["steps"], one.metrics["format_valid"]) == (1, 4, 1)
    assert one.metrics["success/pick_and_place_simple"] == 1


@pytest.mark.parametrize("cls", BOTH)
def test_a_game_that_is_won_in_a_reply_that_is_not_whole_teaches_nothing(cls, data):
    replies = in_parts(*WALKTHROUGH)
    empty = replies[1].replace(">e<", "><")  # no experience: the action still counts
    (one,), engine = the_run(cls, *in_parts("look"), empty, *replies, data=data, max_env_steps=6)
    assert len(engine.exchanges) == 6
    assert one.metrics["format_valid"] == 0
    assert one.action_mask.tolist() == [False]
    assert one.reward == 1.0


def test_a_lost_game_teaches_nothing_and_counts(data):
    (one,), engine = the_run(RAFTAlfworldWorkflow, *in_parts(*LOST), data=data, max_env_steps=3)

    assert len(engine.exchanges) == 3
    assert (one.reward, one.action_mask.tolist()) == (0.0, [False])
    assert (one.metrics["success"], one.metrics["steps"], one.metrics["env_done"]) == (0, 3, 0)


def test_the_third_same_command_in_a_row_ends_a_play_and_is_not_done(data):
    commands = ["look", *["go to shelf 1"] * 3]
    (one,), engine = the_run(RAFTAlfworldWorkflow, *in_parts(*commands), data=data)

    assert len(engine.exchanges) == 4
    assert (one.reward, one.metrics["steps"]) == (0.0, 4)


def test_a_lost_game_is_played_again_knowing_the_first_and_learned_without_it(data):
    first = in_parts("look", "inventory", "look", "inventory")
    replies = [*first, *in_parts(*WALKTHROUGH)]
    (one,), engine = the_run(RAFTReflectAlfworldWorkflow, *replies, data=data, max_env_steps=4)

    assert len(engine.exchanges) == 8
    assert "That was your first attempt. All 4 turns were used" in prompt_of(engine, 4)
    assert in_parts("inventory")[0] in prompt_of(engine, 4)
    assert one.reward == 1.0
    metrics = one.metrics
    assert (metrics["steps"], metrics["second_steps"]) == (4, 4)
    assert (metrics["second_reward"], metrics["improvement"], metrics["success"]) == (1, 1, 0)
    assert "first attempt" not in told(one, engine)
    assert "inventory</action>" not in told(one, engine)
    opening = list(engine.exchanges[0].request.prompt_token_ids)
    assert one.tokens[: one.prompt_length].tolist() == opening
    sampled = [token for asked in engine.exchanges[4:] for token in asked.completions[0].token_ids]
    response = one.tokens[one.prompt_length :][one.action_mask].tolist()
    assert response == sampled
    given = [value for asked in engine.exchanges[4:] for value in asked.completions[0].logprobs]
    assert one.logprobs[one.action_mask].tolist() == pytest.approx(given)


def test_a_play_learned_without_the_first_reads_as_if_it_had_been_the_first(data):
    first = in_parts("look", "inventory", "look", "inventory")
    replies = [*first, *in_parts(*WALKTHROUGH)]
    (again,), engine = the_run(RAFTReflectAlfworldWorkflow, *replies, data=data, max_env_steps=4)
    (at_once,), _ = the_run(RAFTAlfworldWorkflow, *in_parts(*WALKTHROUGH), data=data)

    assert told(again, engine) == told(at_once, engine)
    assert learned(again, engine) == learned(at_once, engine)


def test_a_template_that_changes_earlier_replies_is_refused_with_what_to_do(data):
    engine = ScriptedEngine("one", "two")
    model = a_workflow(RAFTAlfworldWorkflow, engine, data=data).model
    answers = [model.chat([{"role": "user", "content": text}])[0] for text in ("a room", "a shelf")]
    play = Play(observation="a room", messages=[], answers=answers)
    with pytest.raises(WorkflowError, match=r"changes earlier replies.*model.custom_chat_template"):
        without_first_attempt(play, play)


def test_a_game_that_is_lost_twice_teaches_nothing_and_tells_of_both(data):
    replies = in_parts("look", "inventory")
    (one,), engine = the_run(RAFTReflectAlfworldWorkflow, *replies, data=data, max_env_steps=3)

    assert len(engine.exchanges) == 6
    assert (one.reward, one.action_mask.tolist()) == (0.0, [False])
    assert (one.metrics["second_steps"], one.metrics["improvement"]) == (3, 0)


@pytest.mark.parametrize("cls", BOTH)
def test_an_evaluation_is_one_play_and_its_conversation(cls, data):
    engine = ScriptedEngine(*in_parts(*LOST), repeat=True)
    workflow = a_workflow(cls, engine, data=data, max_env_steps=3)
    workflow.task.is_eval = True
    (one,) = workflow.run()

    assert len(engine.exchanges) == 3
    assert (one.reward, one.metrics["success"]) == (0.0, 0)
    assert one.action_mask.any()


def test_the_parts_of_a_reply_come_in_their_order():
    whole = in_parts("look")[0]
    assert parse_response(whole).is_whole
    assert parse_response(whole).action == "look"
    for wrong in ("", "<action>look</action>", "<think>t</think>" + whole.replace("think", "x")):
        assert parse_response(wrong).action == ""
    assert not parse_response(whole.replace(">t<", "> <")).is_whole


def test_where_nothing_happened_a_hint_follows():
    assert observed("A room.") == "Observation:\nA room."
    assert "one of those listed" in observed("Nothing happens.")


def test_a_play_has_50_steps_unless_it_is_told_otherwise(data):
    workflow = a_workflow(RAFTAlfworldWorkflow, ScriptedEngine("x"), data=data)
    assert workflow.max_env_steps == 50
    workflow.task.workflow_args["max_env_steps"] = 0
    with pytest.raises(ConfigError, match="max_env_steps is 0"):
        _ = workflow.max_env_steps


@pytest.mark.parametrize("cls", BOTH)
def test_the_published_imports_lead_to_the_raft_workflows(cls):
    from trinity.common.workflows import WORKFLOWS
    from trinity.common.workflows.envs.alfworld import (
        RAFT_alfworld_workflow,
        RAFT_reflect_alfworld_workflow,
    )

    modules = (RAFT_alfworld_workflow, RAFT_reflect_alfworld_workflow)
    names = ("RAFT_alfworld_workflow", "RAFT_reflect_alfworld_workflow")
    place = BOTH.index(cls)
    assert getattr(modules[place], cls.__name__) is cls
    assert WORKFLOWS.get(names[place]) is cls
