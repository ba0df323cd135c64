"""What a reply with tool calls is worth, and how tools are shown."""

from __future__ import annotations

import json

import pytest
from trinity.errors import BadTaskError
from trinity_compat_rft.workflows.tool_call import (
    ToolCallWorkflow,
    compute_toolcall_reward,
    messages_of,
)
from trinity_testing.builders import a_task
from trinity_testing.scripted_model import scripted_model

ADD = {"name": "add", "arguments": {"a": 40, "b": 6}}
SEND = {"name": "send", "arguments": {"to": "Bob"}}
WANTED = json.dumps([ADD, SEND])


def reply(calls, *, think="<think>Add, then send.</think>") -> str:
    return f"{think} <tool_call>{json.dumps(calls)}</tool_call>"


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (reply([ADD, SEND]), 1.0),
        (reply([SEND, ADD]), 1.0),  # in any order
        (reply([{"arguments": {"b": 6, "a": 40}, "name": "add"}, SEND]), 1.0),
        (reply(json.dumps([ADD, SEND])), 1.0),  # a json text in json
        (reply([ADD]), 0.0),
        (reply([ADD, ADD, SEND]), 0.0),
        (reply([{**ADD, "arguments": {"a": "40", "b": 6}}, SEND]), 0.0),  # a text is no number
        (reply([ADD, {"name": "send"}]), 0.0),
        (reply([ADD, "send"]), 0.0),
        (reply([ADD, SEND], think=""), 0.0),
        (reply([ADD, SEND], think="<think>a</think><think>b</think>"), 0.0),
        ("<tool_call>[]</tool_call> <think>late</think>", 0.0),
        ("<think>a</think> <tool_call>[{</tool_call>", 0.0),
        ("<think>a</think>", 0.0),
        ("", 0.0),
    ],
)
def test_only_exactly_the_wanted_calls_after_one_thought_are_worth_1(text, reward) -> None:
    assert compute_toolcall_reward(text, WANTED) == reward


def test_one_call_needs_no_list_and_the_last_block_counts() -> None:
    text = f"<think>a</think> {reply([SEND], think='')} {reply(ADD, think='')}"

    assert compute_toolcall_reward(text, json.dumps([ADD])) == 1.0


def test_tools_stand_one_a_line_behind_the_system_text_and_turns_keep_their_roles() -> None:
    row = {
        "tools": json.dumps([{"name": "add"}, {"name": "send"}]),
        "raw_system": "Be brief. ",
        "conversations": [
            {"from": "human", "value": "40 + 6?"},
            {"from": "function_call", "value": ADD},
            {"from": "observation", "value": "46"},
            {"from": "gpt", "value": "It is 46."},
        ],
    }

    system, *rest = messages_of(row)

    assert system["content"].startswith("Be brief. # Tool\n\n<tools>\n")
    assert (
        '{"type": "function", "function": {"name": "add"}}\n'
        '{"type": "function", "function": {"name": "send"}}\n</tools>'
    ) in system["content"]
    assert [turn["role"] for turn in rest] == ["user", "assistant", "tool", "assistant"]
    assert rest[1]["content"] == json.dumps(ADD)


@pytest.mark.parametrize("answer", [None, "no json", '{"name": "add"}'])
def test_a_row_without_a_list_of_wanted_calls_is_a_bad_row(answer) -> None:
    row = {"tools": "[]", "raw_system": "", "conversations": [], "answer": answer}
    task = a_task(raw_task=row, origin="tools.jsonl, row 3")

    with pytest.raises(BadTaskError, match=r"tools.jsonl, row 3: .* Correct the row"):
        ToolCallWorkflow(task=task, model=scripted_model("x")).run()
