"""The requests of an agent's run as a tree: which went on with which, and where a chain broke.

The endpoint notes of each reply what its request went on with (``continues``), and why recorded ids
could not go on (``chain_broken``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trinity.common.models.continuation import BREAKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Node", "is_exchange", "listed"]

_DEEPEST = 12  # what is deeper is drawn there

_MAX_TEXT = 4000
Row = dict[str, Any]  # Any: json


@dataclass(kw_only=True)
class Node:
    """One request and its reply.

    Attributes:
        name: of the exchange, unique in the run.
        agent: who asked; empty: it has no name.
        text: of the reply; None: it is not known, as a later reply of its chain stands for it.
        asked: the last message of the request.
        broken: why its recorded beginning did not go on by its ids; empty: it did, or had none.
        facts: what else is noted, by name.
        following: the requests that went on with it.
    """

    name: str
    agent: str = ""
    text: str | None = None
    asked: str = ""
    broken: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    following: list[Node] = field(default_factory=list)


def is_exchange(row: Mapping[str, Any]) -> bool:
    """Return whether the endpoint made the experience."""
    info = row.get("info")
    return isinstance(info, dict) and isinstance(info.get("request"), str)


def listed(rows: Sequence[Row]) -> list[tuple[int, Node]]:
    """Return the requests as they stand below each other, each with how far it is indented.

    What begins a chain is at 0. What goes on with a request stands below it: a little to the right,
    and from there on only where several go on with the same, however long the chain is.
    """
    found: list[tuple[int, Node]] = []
    waiting = [(0, node) for node in reversed(_tree(rows))]
    while waiting:
        depth, node = waiting.pop()
        found.append((depth, node))
        is_deeper = depth == 0 or len(node.following) > 1
        below = min(depth + is_deeper, _DEEPEST)
        waiting += [(below, one) for one in reversed(node.following)]
    return found


def _tree(rows: Sequence[Row]) -> list[Node]:
    """Return the first requests of a run's chains, each with what went on with it."""
    nodes: dict[str, Node] = {}
    parents: dict[str, str] = {}
    for row in filter(is_exchange, rows):
        node = _node(row)
        nodes[node.name] = node
        before = row["info"].get("continues")
        if isinstance(before, str) and before != node.name:
            parents[node.name] = before
    for name in [one for one in parents.values() if one not in nodes]:
        nodes.setdefault(name, Node(name=name))
    roots = []
    for name, node in sorted(nodes.items(), key=lambda item: _order(item[0])):
        parent = parents.get(name)
        if parent is None or _is_above(name, parent, parents):
            roots.append(node)
        else:
            nodes[parent].following.append(node)
    return roots


def _node(row: Row) -> Node:
    info = row["info"]
    word = info.get("chain_broken")
    broken = f"{word}: {BREAKS.get(word, 'unknown')}" if word else ""
    kept = ("reward", "finish_reason", "model_version", "malformed_tool_call", "constrained")
    known = {name: row.get(name, info.get(name)) for name in kept}
    return Node(
        name=info["request"],
        agent=str(info.get("agent") or ""),
        text=_said(row),
        asked=_asked(row),
        broken=broken,
        facts={name: value for name, value in known.items() if value is not None},
    )


def _said(row: Row) -> str:
    messages = row.get("messages")
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        last = messages[-1]
        calls = last.get("tool_calls")
        named = map(_call, calls if isinstance(calls, list) else [])
        return _cut("\n".join([str(last.get("content") or ""), *named]).strip())
    return _cut(str(row.get("response_text") or ""))


def _call(call: Any) -> str:  # Any: json
    """Return a call of a tool as it would be written."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return str(call)
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{function.get('name')}({text})"


def _asked(row: Row) -> str:
    messages = row.get("messages")
    if isinstance(messages, list) and len(messages) > 1 and isinstance(messages[-2], dict):
        before = messages[-2]
        return _cut(f"{before.get('role', '')}: {before.get('content') or ''}")
    return _cut(str(row.get("prompt_text") or ""))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ..."


def _is_above(name: str, parent: str, parents: Mapping[str, str]) -> bool:
    """Return whether a request stands above what it says it goes on with, as in a damaged file."""
    seen = {name}
    while parent not in seen:
        seen.add(parent)
        if parent not in parents:
            return False
        parent = parents[parent]
    return True


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in name.split("-"))
