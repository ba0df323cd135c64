"""The plugin keeps the contracts."""

from __future__ import annotations

from pathlib import Path

from trinity.extend.environments import missing_environment
from trinity_envs_verifiers.environment import ENVIRONMENT
from trinity_testing import conformance

RUN = {
    "raw_task": {"idx": 0},
    "other_raw_task": {"idx": 1},
    "answers": ["eat"],
    "workflow_args": {"taskset": str(Path(__file__).with_name("letters.py"))},
}

#: without its environment nothing of it can run, and the suite says so
ARGS = {} if missing_environment(ENVIRONMENT) else {"workflow/verifiers_workflow": RUN}
test_plugin = conformance.suite("verifiers", args=ARGS)
