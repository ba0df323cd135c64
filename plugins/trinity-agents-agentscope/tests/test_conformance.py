"""The plugin keeps the contracts."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

from trinity_testing import conformance


async def asks(task, model):
    await model([{"role": "user", "content": task["question"]}])
    return SimpleNamespace(reward=1.0, response=None, metrics=None)


async def asks_for_a_number(task, model):
    return (await asks(task, model)).reward


SERVER = str(Path(__file__).with_name("search_server.py"))
FUNCTIONS = {
    "workflow/agentscope_v1_react_search_workflow": {
        "workflow_args": {"search_command": [sys.executable, SERVER], "max_turns": 2},
        "num_auxiliary_models": 1,
    },
    "workflow/agentscope_workflow_adapter_v1": {"workflow_args": {"workflow_func": asks}},
    "workflow/agentscope_workflow_adapter": {"workflow_args": {"workflow_func": asks_for_a_number}},
}

#: without AgentScope nothing of it can run, and the suite says so
test_plugin = conformance.suite("agentscope", args=FUNCTIONS if find_spec("agentscope") else {})
