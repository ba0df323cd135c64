"""Name the workflow and the environment of OpenEnv to Trinity."""

from __future__ import annotations

import sys
from typing import Any

from trinity.extend import ComponentSpec, EnvironmentSpec, hookimpl

from trinity_envs_openenv.environment import ENVIRONMENT

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> dict[str, ComponentSpec]:
    """Return the workflow; it speaks to servers, and imports nothing of OpenEnv."""
    return {
        "openenv_workflow": ComponentSpec(
            "trinity_envs_openenv.workflow:OpenEnvWorkflow",
            summary="the model acts in an environment of an OpenEnv server",
            provides=frozenset({"preflight"}),
        )
    }


@hookimpl
def trinity_assets() -> list[EnvironmentSpec]:
    """Return the environment that servers are started in."""
    return [ENVIRONMENT]


@hookimpl
def trinity_run_finished(run: Any) -> None:  # Any: the runtime's record of the run
    """End the servers that were started here, if any were."""
    server = sys.modules.get("trinity_envs_openenv.server")
    if server is not None:
        server.close_servers()
