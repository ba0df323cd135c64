"""Name the workflows that run AgentScope's agents to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> dict[str, ComponentSpec]:
    """Return the workflows; AgentScope itself is an extra of this distribution."""
    return {
        "agentscope_workflow_adapter_v1": ComponentSpec(
            "trinity_agents_agentscope.adapter:AgentScopeWorkflowAdapterV1",
            summary="a workflow function and a judge function of agentscope.tuner",
            import_aliases=("trinity.common.workflows.agentscope_workflow",),
        ),
        "agentscope_workflow_adapter": ComponentSpec(
            "trinity_agents_agentscope.adapter:AgentScopeWorkflowAdapter",
            summary="a function of a task and a model that returns its reward",
            import_aliases=("trinity.common.workflows.agentscope_workflow",),
        ),
        "agentscope_react_math_workflow": ComponentSpec(
            "trinity_agents_agentscope.react_math:AgentScopeReactMathWorkflow",
            summary="AgentScope's ReActAgent with a Python tool solves a mathematical question",
        ),
    }


@hookimpl
def trinity_assets() -> list[AssetSpec]:
    """Return the package that the workflows run in."""
    return [
        AssetSpec(
            "agentscope",
            "the package agentscope, 1.0.12 or newer and below 2",
            "200 MB",
            "trinity_agents_agentscope.package:missing",
        )
    ]
