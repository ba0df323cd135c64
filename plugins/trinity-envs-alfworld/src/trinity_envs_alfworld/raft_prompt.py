"""What the RAFT workflows say to the model, and what they read in its replies."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "RAFT_SYSTEM_PROMPT",
    "REFLECTION",
    "Reply",
    "observed",
    "parse_response",
    "reflection",
]

RAFT_SYSTEM_PROMPT = """\
You are in a household and have a task to do there. Each turn shows you what you see and the \
commands that are possible now. You carry one thing at a time; what is closed must be opened \
before you see what is in it. Only what a listed command says can be done; anything else does \
nothing and costs a turn.

Write three parts in each turn, in this order. Between <experience> and </experience>: what this \
household and your turns so far have taught you that will help again. Between <think> and \
</think>: where you stand in the task and what comes next. Between <action> and </action>: \
exactly one command, as it is listed:

<experience>Mugs have been on shelves; a closed drawer hides what it holds.</experience>
<think>The first shelf is empty, so I look at the next one.</think>
<action>go to shelf 2</action>
"""

REFLECTION = """\
That was your first attempt. {outcome}

The same game begins again from its start. Before you act, look back over the first attempt: what \
was found where, which turns led nowhere, which command was not possible. Do better this time, in \
fewer turns. Write as if there had been no first attempt, in the same three parts: <experience>, \
<think>, <action>.
"""
_PARTS = re.compile(
    r"<experience>(.*?)</experience>.*?<think>(.*?)</think>.*?<action>(.*?)</action>", re.DOTALL
)
_NOTHING = "Nothing happens."
_HINT = "Check that the command is one of those listed, and that your reply has its three parts."


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The three parts of a reply; all are empty where one of them is missing."""

    experience: str = ""
    think: str = ""
    action: str = ""

    @property
    def is_whole(self) -> bool:
        """Return whether each part says something."""
        return bool(self.experience and self.think and self.action)


def parse_response(response_text: str) -> Reply:
    """Return the parts of a reply, which must come in their order.

    >>> parse_response("<experience>e</experience> <think>t</think><action> look </action>").action
    'look'
    >>> parse_response("<think>t</think><action>look</action>")
    Reply(experience='', think='', action='')
    """
    found = _PARTS.search(response_text)
    if found is None:
        return Reply()
    experience, think, action = (part.strip() for part in found.groups())
    return Reply(experience=experience, think=think, action=action)


def observed(observation: str) -> str:
    """Return the message that shows an observation, with a hint where nothing happened."""
    hint = f"\n\n{_HINT}" if _NOTHING in observation else ""
    return f"Observation:\n{observation}{hint}"


def reflection(*, reward: float, steps: int, max_steps: int) -> str:
    """Return what is said between a first attempt that did not win and the second."""
    if steps >= max_steps:
        outcome = f"All {max_steps} turns were used and the task was not done"
    else:
        outcome = f"It was broken off after {steps} turns: one command came three times in a row"
    return REFLECTION.format(outcome=f"{outcome} (reward: {reward:.1f}).")
