"""The plugin keeps the contracts, in episodes that a server of OpenEnv was recorded with."""

from __future__ import annotations

import pytest
from trinity_testing import conformance

from .conftest import ReplayServer

server = ReplayServer("echo")  # the suite asks for its URL when tests are collected


@pytest.fixture(scope="module", autouse=True)
def _ended():
    yield
    server.close()


EPISODE = {
    "raw_task": {"question": "Echo."},
    "other_raw_task": {"question": "Echo again."},
    "answers": ["hello"],
    "workflow_args": {"url": server.url, "action": {"field": "message"}, "max_env_steps": 2},
}

test_plugin = conformance.suite("openenv", args={"workflow/openenv_workflow": EPISODE})
