"""Chats go on by recorded ids under templates of many shapes; what follows them is never wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import templates
from trinity.common.models.reply import reply_parser
from trinity.common.models.settings import ModelSettings
from trinity_testing.checks.replies import TOOL

# What each column of `python tests/agents/templates.py` must show. The words that are no "yes" are
# what the template does: qwen3_5_like takes the empty thoughts of a call away after a new question,
# llama3_1_like and qwen2_5_like know no thoughts, gpt_oss_like ends its last answer with another
# token than an earlier one.
OWN = {
    "glm4_like": ("yes", "yes", "yes", "reasoning_dropped", "reasoning_dropped"),
    "gpt_oss_like": ("no_end", "yes", "no_end", "no_end", "yes"),
    "kimi_k2_like": ("yes", "yes", "yes", "reasoning_dropped", "yes"),
    "llama3_1_like": ("yes", "yes", "yes", "reasoning_dropped", "reasoning_dropped"),
    "qwen2_5_like": ("yes", "yes", "yes", "reasoning_dropped", "reasoning_dropped"),
    "qwen3_5_like": ("yes", "yes", "rewritten", "reasoning_dropped", "yes"),
    "qwen3_like": ("yes", "yes", "yes", "reasoning_dropped", "yes"),
}


def test_every_template_of_ours_has_its_line_here() -> None:
    assert {path.stem for path in templates.OWN.glob("*.jinja")} == set(OWN)


@pytest.mark.parametrize("name", OWN)
def test_chats_go_on_under_a_template_or_break_for_its_own_reason(name: str) -> None:
    row = templates.row_of(name, (templates.OWN / f"{name}.jinja").read_text("utf-8"))

    assert [one.wrong for one in row.outcomes.values() if one.wrong] == []
    assert tuple(one.word for one in row.outcomes.values()) == OWN[name]


@pytest.mark.parametrize("name", ["glm4_like", "llama3_1_like", "qwen3_5_like", "qwen3_like"])
def test_a_call_is_read_back_from_what_the_template_writes(name: str) -> None:
    talk = templates.Talk((templates.OWN / f"{name}.jinja").read_text("utf-8"), tools=(TOOL,))
    result = templates.tool_message(templates.CALL)
    text = templates.spelled(talk, [templates.ASK], templates.CALL, result).text

    reply = reply_parser(talk.form, ModelSettings()).parse(text, prompt="", tools=[TOOL])

    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        ("look_up", {"word": "delta"})
    ]


def test_with_keep_reasoning_thoughts_go_on_too() -> None:
    rows = templates.table([templates.OWN], keep_reasoning=True)
    words = {row.name: row.outcomes["thought"].word for row in rows}

    assert words == dict.fromkeys(OWN, "yes") | {"gpt_oss_like": "no_end"}


def test_of_published_templates_nine_in_ten_tool_calls_go_on_and_no_rest_is_wrong() -> None:
    folders = templates.default_folders()[1:]
    if not folders:
        pytest.skip("trl is not installed; nox -s chat_templates installs it")
    rows = templates.table(folders)
    words = [row.outcomes["tool call"].word for row in rows]
    taken = [word for word in words if word not in {"refused", "not shown"}]

    assert [one.wrong for row in rows for one in row.outcomes.values() if one.wrong] == []
    assert len(taken) >= 20
    assert taken.count("yes") >= 0.9 * len(taken)
