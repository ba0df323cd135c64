"""An agent that calls tools until it answers, over OpenAI's client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from openai import AsyncOpenAI

__all__ = ["FINISH", "Tool", "ToolAgent", "ToolError"]

FINISH = "generate_response"
GO_ON = f"Go on: call a tool, or {FINISH} with the answer."


class ToolError(ValueError):
    """A tool cannot do what the agent asks for."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Something that an agent may do."""

    arguments: type[BaseModel]
    description: str
    call: Callable[..., str]  # takes the arguments by name; the agent is told of a ToolError


class ToolAgent:
    """Asks the model again and again; ends with a call of ``generate_response``.

    Args:
        client: of the model.
        model_name: as the client's API knows it.
        system_prompt: what the agent is to do.
        tools: by name.
        response_structure: the arguments of ``generate_response``.
        options: how the model is asked (Any: as the client takes it).
        max_iters: most calls of the model.
    """

    def __init__(  # noqa: PLR0913 -- what an agent is made of
        self,
        client: AsyncOpenAI,
        model_name: str,
        *,
        system_prompt: str,
        tools: Mapping[str, Tool],
        response_structure: type[BaseModel],
        options: Mapping[str, Any],
        max_iters: int,
    ) -> None:
        self.client = client
        self.model_name = model_name
        self.system_prompt = system_prompt
        self.tools = dict(tools)
        self._structures = {name: tool.arguments for name, tool in self.tools.items()}
        self._structures[FINISH] = response_structure
        self.options = {name: value for name, value in options.items() if value is not None}
        self.max_iters = max_iters

    async def reply(self, query: str) -> dict[str, Any]:
        """Return the fields of the answer; an empty dict: none came in ``max_iters`` calls."""
        messages: list[Any] = [
            {"role": "system", "content": self.system_prompt},
            {"role": "user", "content": query},
        ]
        for _ in range(self.max_iters):
            completion = await self.client.chat.completions.create(
                model=self.model_name, messages=messages, tools=self._described(), **self.options
            )
            said = completion.choices[0].message
            calls = said.tool_calls or []
            messages.append(_sent_back(said.content, calls))
            for call in calls:
                answer, told = self._done(call.function.name, call.function.arguments)
                if answer is not None:
                    return answer
                messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
            if not calls:
                messages.append({"role": "user", "content": GO_ON})
        return {}

    def _done(self, name: str, written: str) -> tuple[dict[str, Any] | None, str]:
        """Return the answer if the call is one, and what the agent is told of it."""
        structure = self._structures.get(name)
        if structure is None:
            known = ", ".join(self._structures)
            return None, f"Error: there is no tool {name!r}. There are {known}."
        try:
            given = structure.model_validate_json(written or "{}")
            if name == FINISH:
                return given.model_dump(), ""
            return None, self.tools[name].call(**dict(given))
        except ValidationError as error:
            wrong = "; ".join(f"{_place(one)}: {one['msg']}" for one in error.errors())
            return None, f"Error: the arguments of {name} are wrong: {wrong}."
        except ToolError as error:
            return None, f"Error: {error}."

    def _described(self) -> list[Any]:
        """Return the tools as OpenAI's API has them."""
        descriptions = {name: tool.description for name, tool in self.tools.items()}
        descriptions[FINISH] = "End the work with the answer. Call it once, when you are done."
        return [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": descriptions[name],
                    "parameters": structure.model_json_schema(),
                },
            }
            for name, structure in self._structures.items()
        ]


def _sent_back(content: str | None, calls: list[Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content or ""}
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in calls
        ]
    return message


def _place(error: Any) -> str:
    return ".".join(map(str, error["loc"])) or json.dumps(error["type"])
