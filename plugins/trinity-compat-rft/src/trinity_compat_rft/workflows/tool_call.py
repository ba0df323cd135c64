"""One reply that thinks and calls tools, compared with the calls that the row names."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import SimpleWorkflow
from trinity.errors import BadTaskError

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.workflows import Task

__all__ = ["ToolCallWorkflow", "compute_toolcall_reward", "messages_of"]

_TOOLS = """# Tool

<tools>
{tools}
</tools>

Whenever you act:
1. Reason first, between <think> and </think>.
2. Then give the calls as a JSON list between <tool_call> and </tool_call>: <tool_call>[{{"name": <function-name>, "arguments": <args-json-object>}}, ...]</tool_call>
3. Put the reasoning and the calls into one and the same reply.
A whole reply looks like this: <think> Bob should get the report, then the room has to be booked. </think> <tool_call>[{{"name": "send", "arguments": {{"to": "Bob", "what": "report"}}}}, {{"name": "book", "arguments": {{"room": 4}}}}]</tool_call>. Give each argument the type that the tool asks for.
"""  # noqa: E501 -- one line each, as models see it
_CALLS = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
    "function_call": "assistant",
}


class ToolCallWorkflow(SimpleWorkflow):
    """Shows tools and a conversation; 1 for exactly the calls of the row's ``answer``, else 0.

    The row's columns: ``tools`` and ``answer`` (json texts), ``raw_system``, ``conversations`` (a
    list of ``{"from": ..., "value": ...}``). ``prompt_key`` and ``response_key`` are not read.
    """

    needs_reward_fn = False
    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {
            "tools": '[{"name": "add"}]',
            "raw_system": "",
            "conversations": [{"from": "human", "value": "What is 40 + 6?"}],
            "answer": '[{"name": "add", "arguments": {"a": 40, "b": 6}}]',
        },
        "answers": [
            "<think>Add.</think> "
            '<tool_call>[{"name": "add", "arguments": {"a": 40, "b": 6}}]</tool_call>'
        ],
    }

    def reset(self, task: Task) -> None:
        """Take another task; no reward function is asked."""
        self.task = task
        self.raw_task = task.raw_task

    def format_messages(self) -> list[dict[str, str]]:
        """Return the tools and the conversation.

        Raises:
            BadTaskError: the row lacks a column, or one is no json.
        """
        try:
            return messages_of(self.raw_task)
        except (KeyError, TypeError, ValueError) as error:
            raise _bad(self.task, error) from error

    async def run_async(self) -> list[Experience]:
        """Return one experience for each reply."""
        asked = self.format_messages()
        wanted = self._wanted()
        responses = await self.model.chat_async(asked, **self.rollout_args)
        for place, response in enumerate(responses):
            response.reward = compute_toolcall_reward(response.response_text or "", wanted)
            response.eid.run = self.run_id_base + place
        return responses

    def _wanted(self) -> str:
        wanted = self.raw_task.get("answer")
        try:
            calls = _decoded(wanted)
            if not isinstance(calls, list):
                raise ValueError(f"'answer' is {calls!r:.60}, no list of calls")
        except (TypeError, ValueError) as error:
            raise _bad(self.task, error) from error
        return str(wanted)


def messages_of(row: dict[str, Any]) -> list[dict[str, str]]:
    """Return the conversation of a row, with the tools in the system message."""
    tools = json.loads(row["tools"])
    shown = "\n".join(json.dumps({"type": "function", "function": tool}) for tool in tools)
    messages = [{"role": "system", "content": row["raw_system"] + _TOOLS.format(tools=shown)}]
    for turn in row["conversations"]:
        role = _ROLES.get(turn["from"])
        if role is not None:
            value = turn["value"]
            is_call = turn["from"] == "function_call"
            messages.append({"role": role, "content": json.dumps(value) if is_call else value})
    return messages


def compute_toolcall_reward(solution_str: str, ground_truth: str) -> float:
    """Return 1 if the reply thinks once, then makes exactly the wanted calls; else 0.

    Args:
        solution_str: the reply.
        ground_truth: json of a list of ``{"name": ..., "arguments": {...}}``, in any order.
    """
    thinks_once = solution_str.count("<think>") == solution_str.count("</think>") == 1
    begins = solution_str.find("<tool_call>")
    blocks = _CALLS.findall(solution_str)
    if not thinks_once or not blocks or solution_str.find("</think>") > begins:
        return 0.0
    try:
        made = _decoded(blocks[-1].strip())
    except ValueError:
        return 0.0
    made = [made] if isinstance(made, dict) else made
    wanted = _decoded(ground_truth)
    if not isinstance(made, list) or not all(map(_is_call, made)):
        return 0.0
    return float(_counted(made) == _counted(wanted))


def _decoded(text: Any) -> Any:  # Any: what json holds
    """Return what a json text holds, which may be a json text again."""
    value = json.loads(text)
    return json.loads(value) if isinstance(value, str) else value


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and {"name", "arguments"} <= set(call)


def _counted(calls: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter(
        (json.dumps(call["name"]), json.dumps(call["arguments"], sort_keys=True)) for call in calls
    )


def _bad(task: Task, error: Exception) -> BadTaskError:
    what = f"no column {error}" if isinstance(error, KeyError) else str(error)
    return BadTaskError(
        f"{task.origin}: {what}. A row of tool calls has the json texts 'tools' and 'answer', "
        f"'raw_system', and the list 'conversations'. Correct the row."
    )
