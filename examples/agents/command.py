"""The same agent as a program of its own; it could be written in any language."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS = {"add": lambda a, b: a + b, "multiply": lambda a, b: a * b}
OFFERED = [
    {"type": "function", "function": {"name": name, "parameters": NUMBERS}} for name in TOOLS
]
ENV = os.environ  # noqa: TID251 -- an agent of somebody else


def main() -> None:
    """Read the row, answer, write the reward."""
    task = json.loads(Path(ENV["TRINITY_TASK_FILE"]).read_text(encoding="utf-8"))
    answer, num_calls = answered(task["question"])
    result = {"reward": float(answer.strip() == task["answer"]), "calls": num_calls}
    Path(ENV["TRINITY_RESULT_FILE"]).write_text(json.dumps(result), encoding="utf-8")


def answered(question: str) -> tuple[str, int]:
    """Return the answer, and how often the model was asked for it."""
    messages: list[Any] = [{"role": "user", "content": question}]
    for number in range(1, 5):
        said = asked({"model": ENV["TRINITY_MODEL"], "messages": messages, "tools": OFFERED})
        if not said.get("tool_calls"):
            return said["content"], number
        messages.append(said)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": used(call["function"])}
            for call in said["tool_calls"]
        ]
    return "", number


def asked(body: dict[str, Any]) -> dict[str, Any]:
    """Return the message that the model answers with."""
    request = urllib.request.Request(
        ENV["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": "Bearer " + ENV["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        return dict(json.load(reply)["choices"][0]["message"])


def used(function: dict[str, str]) -> str:
    """Return what a tool says to the arguments that the model chose."""
    try:
        return str(TOOLS[function["name"]](**json.loads(function["arguments"])))
    except (KeyError, TypeError, ValueError) as error:
        return f"error: {error}"


if __name__ == "__main__":
    main()
