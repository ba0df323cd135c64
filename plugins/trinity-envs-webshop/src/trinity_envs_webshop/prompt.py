"""Say to the model what it sees and may do, and read what it does."""

from __future__ import annotations

import re
from typing import Any

from trinity_envs_webshop.env import parsed_action

__all__ = ["WEBSHOP_SYSTEM_PROMPT", "format_observation", "parse_action", "validate_action"]

WEBSHOP_SYSTEM_PROMPT = """\
You are shopping in an online shop for a customer. Each turn shows you the page that is open and \
the actions that it allows. Find the product that fits the customer's instruction best, choose its \
options, and buy it.

There are two kinds of actions:
search[words]  looks for products; a page with a search bar allows it.
click[name]    clicks on a button, a product or an option that the page lists.

Think first about what the customer wants and what the page shows, between <think> and </think>. \
Then write exactly one action between <action> and </action>:

<think>The customer wants a wooden coffee table, so I look for one.</think>
<action>search[wooden coffee table]</action>

click[buy now] ends the session: what you bought, its options and its price are compared with the \
instruction. Nothing is bought without it.
"""

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)


def format_observation(observation: str, available_actions: dict[str, Any]) -> str:
    """Return the message that shows a page.

    Args:
        observation: the page as text.
        available_actions: what ``get_available_actions`` returned.
    """
    actions = ["search[words]"] if available_actions["has_search_bar"] else []
    actions += [f"click[{name}]" for name in available_actions["clickables"] if name != "search"]
    return f"Observation:\n{observation}\nAvailable actions:\n" + "\n".join(actions)


def parse_action(response_text: str) -> str:
    """Return the action of a reply, the last one that it names; empty: it names none.

    >>> parse_action("<think>Back!</think><action> click[< Prev] </action>"), parse_action("Hm.")
    ('click[< Prev]', '')
    """
    found = _ACTION.findall(response_text)
    return found[-1].strip() if found else ""


def validate_action(action: str, available_actions: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the page allows the action, and if not, what to tell the model."""
    name, argument = parsed_action(action)
    if argument is None or name not in {"search", "click"}:
        return False, _NO_ACTION
    if name == "search":
        is_allowed = available_actions["has_search_bar"]
        return is_allowed, "" if is_allowed else _NO_SEARCH_BAR
    if argument == "search" or argument not in available_actions["clickables"]:
        return False, f"There is nothing to click named {argument!r} on this page."
    return True, ""


_NO_ACTION = (
    "No action was found. Write exactly one, such as <action>search[words]</action> or "
    "<action>click[name]</action>."
)
_NO_SEARCH_BAR = "This page has no search bar. Click on 'back to search' first."
