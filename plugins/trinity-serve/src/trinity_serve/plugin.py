"""Name the endpoint, the workflow, the mode and the command to Trinity."""

from __future__ import annotations

from trinity.extend import ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> dict[str, ComponentSpec]:
    """Return the workflow of agents that ask their model by the endpoint."""
    return {
        "agent_workflow": ComponentSpec(
            "trinity_serve.agent_workflow:AgentWorkflow",
            import_aliases=("trinity.common.workflows.agent",),
        )
    }


@hookimpl
def trinity_endpoints() -> dict[str, ComponentSpec]:
    """Return the server that speaks OpenAI's and Anthropic's interfaces."""
    return {
        "openai": ComponentSpec(
            "trinity_serve.endpoint.server:EndpointHost",
            summary="chat completions, completions, responses and messages",
        )
    }


@hookimpl
def trinity_run_modes() -> dict[str, ComponentSpec]:
    """Return the mode in which agents outside make the rollouts."""
    return {
        "serve": ComponentSpec(
            "trinity_serve.run_mode:ServeMode",
            summary="serve the model by HTTP, and train on rewarded calls",
            checks="trinity_serve.checks:serve_problems",
        )
    }


@hookimpl
def trinity_commands() -> dict[str, ComponentSpec]:
    """Return the command that runs mode ``serve``."""
    return {
        "serve": ComponentSpec(
            "trinity_serve.serve_command:serve",
            "Serve the model by HTTP, and train on the agents' calls.",
        )
    }
