"""Name the workflow and the environment of verifiers to Trinity."""

from __future__ import annotations

import sys
from typing import Any

from trinity.extend import ComponentSpec, EnvironmentSpec, hookimpl

from trinity_envs_verifiers.environment import ENVIRONMENT

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> dict[str, ComponentSpec]:
    """Return the workflow; verifiers itself is in an environment of its own."""
    return {
        "verifiers_workflow": ComponentSpec(
            "trinity_envs_verifiers.workflow:VerifiersWorkflow",
            summary="a task of a verifiers taskset, run and scored by verifiers",
            provides=frozenset({"preflight"}),
        )
    }


@hookimpl
def trinity_assets() -> list[EnvironmentSpec]:
    """Return the environment that tasks are run in."""
    return [ENVIRONMENT]


@hookimpl
def trinity_run_finished(run: Any) -> None:  # Any: the runtime's record of the run
    """End the processes that were started here, if any were."""
    child = sys.modules.get("trinity_envs_verifiers.child_process")
    if child is not None:
        child.close_children()
