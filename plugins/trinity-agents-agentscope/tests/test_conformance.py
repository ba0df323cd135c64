"""The plugin keeps the contracts."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace

from trinity_testing import conformance


async def asks(task, model):
    await model([{"role": "user", "content": task["question"]}])
    return SimpleNamespace(reward=1.0, response=None, metrics=None)


async def asks_for_a_number(task, model):
    return (await asks(task, model)).reward


FUNCTIONS = {
    "workflow/agentscope_workflow_adapter_v1": {"workflow_args": {"workflow_func": asks}},
    "workflow/agentscope_workflow_adapter": {"workflow_args": {"workflow_func": asks_for_a_number}},
}

#: without AgentScope nothing of it can run, and the suite says so
test_plugin = conformance.suite("agentscope", args=FUNCTIONS if find_spec("agentscope") else {})
