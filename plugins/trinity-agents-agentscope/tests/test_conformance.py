"""The plugin keeps the contracts."""

from __future__ import annotations

from types import SimpleNamespace

from trinity_testing import conformance


async def asks(task, model):
    await model([{"role": "user", "content": task["question"]}])
    return SimpleNamespace(reward=1.0, response=None, metrics=None)


async def asks_for_a_number(task, model):
    return (await asks(task, model)).reward


test_plugin = conformance.suite(
    "agentscope",
    args={
        "workflow/agentscope_workflow_adapter_v1": {"workflow_args": {"workflow_func": asks}},
        "workflow/agentscope_workflow_adapter": {
            "workflow_args": {"workflow_func": asks_for_a_number}
        },
    },
)
