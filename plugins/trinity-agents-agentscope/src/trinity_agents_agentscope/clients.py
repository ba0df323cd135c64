"""OpenAI's client, made to take what AgentScope's chat models give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["choosing_freely", "with_template_settings"]

SETTINGS = "chat_template_kwargs"  # OpenAI's SDK knows no such argument
Client = TypeVar("Client")


def with_template_settings(client: Client) -> Client:
    """Let ``chat_template_kwargs`` stand among the arguments of a call; return the client.

    ``TrinityChatModel(enable_thinking=...)`` puts it there; it travels in ``extra_body``.
    """
    completions: Any = client.chat.completions  # type: ignore[attr-defined]  # of OpenAI's SDK
    for name in ("create", "parse"):
        setattr(completions, name, _moving(getattr(completions, name)))
    return client


def choosing_freely(client: Client) -> Client:
    """Let the model choose whether to call a tool, also where an agent demands it.

    A reply that is forced into a call is not what the model would have said, and it would be
    trained on it. An agent that demands one asks again after a reply without. Returns the client.
    """
    completions: Any = client.chat.completions  # type: ignore[attr-defined]  # of OpenAI's SDK
    call = completions.create

    def create(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("tool_choice") == "required":
            kwargs["tool_choice"] = "auto"
        return call(*args, **kwargs)

    completions.create = create
    return client


def _moving(call: Callable[..., Any]) -> Callable[..., Any]:  # Any: as OpenAI's SDK has them
    def moved(*args: Any, **kwargs: Any) -> Any:
        if SETTINGS in kwargs:
            settings = {SETTINGS: kwargs.pop(SETTINGS)}
            kwargs["extra_body"] = {**settings, **(kwargs.get("extra_body") or {})}
        return call(*args, **kwargs)

    return moved
