"""Thoughts end where their budget does; what ends them is masked, and nothing else is."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.workflows import WORKFLOWS
from trinity.errors import BadTaskError, ConfigError, ModelError
from trinity_testing.builders import a_task
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over, script_chat_format

NAME = "thinking_budget_workflow"
ROW = {"messages": [{"role": "user", "content": "40 + 6?"}], "answer": "46"}
OPENED = {**ROW, "messages": [*ROW["messages"], {"role": "assistant", "content": "<think>"}]}
FORM = {"prompt_key": "messages", "response_key": "answer"}


def a_row(budget=4, **fields):
    return a_task(
        workflow=NAME,
        raw_task=fields.pop("raw_task", ROW),
        format_args=FORM,
        reward_fn="accuracy_reward",
        workflow_args={"thinking_token_budget": budget, **fields.pop("workflow_args", {})},
        **fields,
    )


class Thinking(ScriptedEngine):
    """Goes on with its thoughts where a piece was cut, and says the rest behind their end."""

    def __init__(self, thoughts: str, rest: str = "") -> None:
        super().__init__()
        self.thoughts, self.rest = thoughts, rest

    def answer(self, request) -> str:
        first = self.exchanges[0].request if self.exchanges else request
        said = request.prompt_token_ids[len(first.prompt_token_ids) :]
        is_ended = script_chat_format().decode(said).endswith("</think>")
        return (
            self.rest if self.rest and is_ended else self.thoughts[len(said) :]
        )  # one token a letter


def answered(engine, task, model=None):
    """Return the experiences of a model that says a script, one token a letter."""
    workflow = task.to_workflow(model or model_over(engine))
    workflow.set_repeat_times(task.repeat_times, 0)
    return asyncio.run(workflow.run_async())


def said(experience) -> list[tuple[str, bool]]:
    """Return the text of each stretch of the response, and whether it is trained on."""
    stretches: list[tuple[list[int], bool]] = []
    tokens = experience.tokens[experience.prompt_length :].tolist()
    for token, is_trained in zip(tokens, experience.action_mask.tolist(), strict=True):
        if not stretches or stretches[-1][1] != is_trained:
            stretches.append(([], is_trained))
        stretches[-1][0].append(token)
    decode = script_chat_format().decode
    return [(decode(ids), is_trained) for ids, is_trained in stretches]


def test_thoughts_over_the_budget_are_cut_and_ended_and_only_the_end_is_masked() -> None:
    engine = Thinking("<think>abcdefgh", "It is 46.")

    (experience,) = answered(engine, a_row())

    assert said(experience) == [
        ("<think>abcd", True),
        ("</think>", False),
        ("It is 46.", True),
    ]
    asked = engine.exchanges[-1].request.prompt_token_ids
    assert tuple(experience.tokens[: len(asked)].tolist()) == asked
    mask, logprobs = experience.action_mask.tolist(), experience.logprobs.tolist()
    assert [value for value, own in zip(logprobs, mask, strict=True) if not own] == [
        0.0
    ] * mask.count(False)
    assert (experience.reward, experience.metrics["thinking/forced"]) == (1.0, 1.0)
    assert experience.truncate_status is None


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("<think>ab</think>46", 99),
        ("<think>ab</think>46 is the answer", 10),  # "ab</think>" are 10 letters
        ("<think>abcdefg", 8),  # and the end of the turn
        ("46, and no thoughts at all", 4),
        ("46, and then <think>abcdefgh", 2),
    ],
)
def test_what_the_model_ends_itself_is_trained_on(text, budget) -> None:
    (experience,) = answered(Thinking(text), a_row(budget))

    assert said(experience) == [(text, True)]
    assert experience.metrics["thinking/forced"] == 0.0


def test_a_prompt_that_opens_the_thoughts_counts_from_its_end_also_a_budget_of_0() -> None:
    (some,) = answered(ScriptedEngine("abcdefgh", "46"), a_row(3, raw_task=OPENED))
    (none,) = answered(ScriptedEngine("46"), a_row(0, raw_task=OPENED))

    assert said(some) == [("abc", True), ("</think>", False), ("46", True)]
    assert said(none) == [("</think>", False), ("46", True)]


def test_each_run_of_a_group_has_its_own_end_and_the_prompt_is_asked_once() -> None:
    engine = ScriptedEngine("abcdefgh", "a", "46")
    task = a_row(repeat_times=2, raw_task=OPENED)

    experiences = answered(engine, task)

    assert [one.eid.run for one in experiences] == [0, 1]
    assert [one.metrics["thinking/forced"] for one in experiences] == [1.0, 0.0]
    assert [exchange.request.n for exchange in engine.exchanges] == [2, 1]


def test_a_reply_is_no_longer_than_max_tokens_with_the_forced_ones() -> None:
    num_end = len(script_chat_format().encode("</think>"))
    args = {"raw_task": OPENED, "rollout_args": {"max_tokens": 3 + num_end + 2}}

    (cut,) = answered(ScriptedEngine("abcdefgh", "46 is it"), a_row(3, **args))

    assert said(cut) == [("abc", True), ("</think>", False), ("46", True)]
    assert cut.truncate_status == "response_truncated"


def test_no_room_beside_the_forced_tokens_is_refused() -> None:

    with pytest.raises(ConfigError, match="max_tokens 1 leaves no token"):
        answered(ScriptedEngine("46"), a_row(0, raw_task=OPENED, rollout_args={"max_tokens": 1}))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "thinking_token_budget is None"),
        ({"thinking_token_budget": -1}, "thinking_token_budget is -1"),
        ({"thinking_token_budget": True}, "thinking_token_budget is True"),
        ({"thinking_token_budget": 4, "reasoning_end_str": ""}, "reasoning_end_str are"),
        ({"thinking_token_budget": 4, "reasoning_end": "x"}, "reasoning_end_str"),
    ],
)
def test_a_bad_argument_is_refused_by_name(arguments, words) -> None:
    with pytest.raises(ConfigError, match=words):
        WORKFLOWS.get(NAME).check_arguments(arguments)


def test_a_row_without_messages_is_refused() -> None:
    with pytest.raises(BadTaskError, match="'messages' is no list"):
        answered(ScriptedEngine("46"), a_row(raw_task={"messages": "40 + 6?", "answer": "46"}))


class Full(Thinking):
    """Has no room behind the thoughts, though more were asked for."""

    def _complete(self, request):
        completions = super()._complete(request)
        if len(self.exchanges) <= 2:  # up to the budget
            return completions
        empty = {"token_ids": (), "logprobs": (), "finish_reason": "length"}
        return [replace(one, **empty) for one in completions]


def test_a_reply_for_which_the_engine_has_no_room_ends() -> None:
    (cut,) = answered(Full("<think>abcdefgh"), a_row())

    assert said(cut) == [("<think>abcd", True), ("</think>", False)]
    assert cut.truncate_status == "response_truncated"


def test_an_engine_that_does_not_answer_is_named() -> None:
    engine = ScriptedEngine("46")
    engine.hold()
    settings = ModelSettings(model_path="scripted", request_timeout_s=0.01)

    with pytest.raises(ModelError, match="gave no answer"):
        answered(engine, a_row(), ModelWrapper(engine, script_chat_format(), settings))
