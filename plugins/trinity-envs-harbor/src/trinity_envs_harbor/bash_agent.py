"""The built-in agent: the model's replies are commands, or call the tool ``bash``."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity_sandbox.base import CommandResult

    from trinity_envs_harbor.environment import TaskEnvironment
    from trinity_envs_harbor.settings import HarborSettings
    from trinity_envs_harbor.task import TaskStep

__all__ = ["BASH_TOOL", "BashAgent", "shown_result"]

BASH_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": (
            "Run a shell command in the task's environment and return what it prints. Files stay "
            "between calls; the working directory, variables and background processes do not."
        ),
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command."}},
            "required": ["command"],
        },
    },
}
_FENCED = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_NO_TIME = "The time for this task is over."


@dataclass(kw_only=True)
class BashAgent:
    """Runs the model's commands until it is done, out of replies or out of time.

    Attributes:
        step: whose time it has.
        num_replies: how often the model was asked.
        num_commands: how many commands ran.
        is_late: the time was over before the model was done.
    """

    environment: TaskEnvironment
    step: TaskStep
    settings: HarborSettings
    num_replies: int = 0
    num_commands: int = 0
    is_late: bool = False

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.step.agent_timeout_s

    @property
    def goes_on(self) -> bool:
        """Return whether the model may be asked once more."""
        self.is_late = self.is_late or time.monotonic() >= self._until
        return not self.is_late and self.num_replies < self.settings.max_env_steps

    def with_texts(self, messages: list[dict[str, Any]], ask: Callable[..., str]) -> None:
        """Let the model act by what its replies say; the messages grow.

        Args:
            messages: begin with the instruction.
            ask: messages -> the text of a reply.
        """
        while self.goes_on:
            reply = ask(messages)
            self.num_replies += 1
            messages.append({"role": "assistant", "content": reply})
            command = self._command_of(reply)
            if command is None:
                return
            told = self._run(command)
            if not self.goes_on:
                return
            messages.append({"role": "user", "content": told})

    def with_tools(self, messages: list[dict[str, Any]], ask: Callable[..., Any]) -> None:
        """Let the model act by calling the tool; a reply that calls none ends it.

        Args:
            messages: begin with the instruction.
            ask: messages and tools -> a recorded call.
        """
        while self.goes_on:
            reply = ask(messages, [BASH_TOOL])
            self.num_replies += 1
            messages.append(reply.parsed.message())
            for call in reply.parsed.tool_calls:
                told = self._called(call.name, call.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
            if not reply.parsed.tool_calls:
                return

    def _command_of(self, reply: str) -> str | None:
        if self.settings.action == "raw":
            return reply.strip()
        blocks: list[str] = _FENCED.findall(reply)
        return blocks[-1] if blocks else None

    def _called(self, name: str, arguments: Any) -> str:
        if name != "bash":
            return f"error: no tool is named {name!r}; there is bash."
        command = arguments.get("command") if isinstance(arguments, dict) else None
        if not isinstance(command, str):
            return 'error: bash needs {"command": "..."}.'
        return self._run(command)

    def _run(self, command: str) -> str:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            self.is_late = True
            return _NO_TIME
        if "\0" in command:
            return "error: a command cannot hold a zero byte."
        self.num_commands += 1
        ended = self.environment.run_script(command, step=self.step, timeout_s=left_s)
        self.is_late = self.is_late or ended.reason == "wall_time"
        return shown_result(ended, most=self.settings.output_chars)


def shown_result(ended: CommandResult, *, most: int) -> str:
    """Return what the model sees of a command, the middle of long output left out."""
    text = ended.stdout.decode(errors="replace").strip("\n")
    if len(text) > most:
        half = most // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]}\n[{left_out} characters left out]\n{text[len(text) - half :]}"
    notes = []
    if ended.reason:
        notes.append(f"[ended by its limit of {ended.reason}]")
    elif ended.exit:
        notes.append(f"[exit code {ended.exit}]")
    return "\n".join([*([text] if text else []), *notes]) or "[no output]"
