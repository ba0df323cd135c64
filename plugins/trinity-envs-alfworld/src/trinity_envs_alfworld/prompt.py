"""Say to the model what it may do, and read what it does."""

from __future__ import annotations

import re

__all__ = [
    "AlfWORLD_SYSTEM_PROMPT",
    "format_observation",
    "observation_with_commands",
    "parse_action",
]

AlfWORLD_SYSTEM_PROMPT = """\
You are in a household and have a task to do there. Each turn shows you what you see and the \
commands that are possible now. You carry one thing at a time; what is closed must be opened \
before you see what is in it. Only what a listed command says can be done; anything else does \
nothing and costs a turn.

Think between <think> and </think> about where things may be and what comes next. Then write \
exactly one command between <action> and </action>, as it is listed:

<think>A mug may be on the shelf.</think>
<action>go to shelf 1</action>
"""

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)


def format_observation(observation: str) -> str:
    """Return the message that shows an observation."""
    return f"Observation:\n{observation}"


def observation_with_commands(text: str, commands: list[str]) -> str:
    r"""Return what the model sees: the engine's text, and what can be done now.

    >>> observation_with_commands("You see a desk 1.", ["go to desk 1", "look"])
    'You see a desk 1.\n\nAdmissible commands:\ngo to desk 1\nlook'
    """
    return "\n".join([text, "", "Admissible commands:", *commands])


def parse_action(response_text: str) -> str:
    """Return the command of a reply, the last one that it names; empty: it names none.

    >>> parse_action("<think>There!</think><action> open fridge 1 </action>"), parse_action("Hm.")
    ('open fridge 1', '')
    """
    found: list[str] = _ACTION.findall(response_text)
    return found[-1].strip() if found else ""
