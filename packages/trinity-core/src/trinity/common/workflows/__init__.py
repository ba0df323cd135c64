"""Workflows: the contract, the registry and the built-in ones.

Classes of installed plugins that the tutorials import from here are found too.
"""

from typing import Any

from trinity.common.workflows.math import AsyncMathWorkflow, MathWorkflow
from trinity.common.workflows.simple import AsyncSimpleWorkflow, SimpleWorkflow
from trinity.common.workflows.task import Task
from trinity.common.workflows.workflow import WORKFLOWS, Workflow

__all__ = [
    "WORKFLOWS",
    "AsyncMathWorkflow",
    "AsyncSimpleWorkflow",
    "MathWorkflow",
    "SimpleWorkflow",
    "Task",
    "Workflow",
]


def __getattr__(name: str) -> Any:  # Any: a class of a plugin
    from trinity.extend.aliases import published_class

    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return published_class("workflow", name)
