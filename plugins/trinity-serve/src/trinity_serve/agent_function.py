"""An agent that is a function of Python."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError, did_you_mean
from trinity.extend.component import imported_target, look_in_working_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.workflows.workflow import Workflow

__all__ = ["AgentFunction"]

OFFERED = ("task", "client", "async_client", "endpoint", "auxiliary_models", "logger")


class AgentFunction:
    """Calls the function with what its signature names.

    Args:
        agent: the function, or ``module:function``.

    Raises:
        ConfigError: it is not there, or asks for what nobody offers.
    """

    def __init__(self, agent: Any) -> None:  # Any: a user's setting
        self._function: Callable[..., Any] = _found(agent)
        self._names = _names_of(self._function)
        self._task: asyncio.Task[Any] | None = None
        self._lock = threading.Lock()

    def run(self, workflow: Workflow) -> Any:  # Any: what it returns
        """Return what the function returns; one that awaits gets a loop of its own."""
        if inspect.iscoroutinefunction(self._function) or "async_client" in self._names:
            return asyncio.run(self._awaited(workflow))
        arguments = self._arguments(workflow)
        try:
            return self._function(**arguments)
        finally:
            if "client" in arguments:
                arguments["client"].close()

    def close(self) -> None:
        """Cancel a function that awaits; from any thread."""
        with self._lock:
            task = self._task
        if task is not None and not task.done():
            task.get_loop().call_soon_threadsafe(task.cancel)

    async def _awaited(self, workflow: Workflow) -> Any:
        arguments = self._arguments(workflow)
        with self._lock:
            self._task = asyncio.current_task()
        try:
            returned = self._function(**arguments)
            return await returned if inspect.isawaitable(returned) else returned
        finally:
            with self._lock:
                self._task = None
            if "async_client" in arguments:
                await arguments["async_client"].close()

    def _arguments(self, workflow: Workflow) -> dict[str, Any]:
        model = workflow.model
        makers: dict[str, Callable[[], Any]] = {
            "task": lambda: dict(workflow.task.raw_task),
            "client": model.get_openai_client,
            "async_client": model.get_openai_async_client,
            "endpoint": model.endpoint,
            "auxiliary_models": lambda: workflow.auxiliary_models or [],
            "logger": lambda: workflow.logger,
        }
        return {name: make() for name, make in makers.items() if name in self._names}


def _found(agent: Any) -> Callable[..., Any]:
    if callable(agent):
        found: Callable[..., Any] = agent
        return found
    if not isinstance(agent, str) or ":" not in agent:
        raise ConfigError(
            f"workflow_args.agent is {agent!r:.80}. Give a function, or module:function."
        )
    look_in_working_directory(agent)
    try:
        named: Any = imported_target(agent)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"workflow_args.agent: {agent!r} cannot be imported ({error}). A module of yours is "
            f"found below the working directory, or by PYTHONPATH."
        ) from error
    if not callable(named):
        raise ConfigError(f"workflow_args.agent: {agent!r} is no function. Name one.")
    function: Callable[..., Any] = named
    return function


def _names_of(function: Callable[..., Any]) -> frozenset[str]:
    """Return what the function is to be given.

    Raises:
        ConfigError: it asks for something else, without a default.
    """
    parameters = inspect.signature(function).parameters.values()
    names = set()
    for parameter in parameters:
        if parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}:
            continue
        if parameter.name in OFFERED and parameter.kind != parameter.POSITIONAL_ONLY:
            names.add(parameter.name)
        elif parameter.default is parameter.empty:
            raise ConfigError(
                f"the agent asks for {parameter.name!r}, which nobody gives it."
                f"{did_you_mean(parameter.name, OFFERED)} It may name: {', '.join(OFFERED)}."
            )
    return frozenset(names)
