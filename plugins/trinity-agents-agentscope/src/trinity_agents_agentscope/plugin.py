"""Name the workflows that run AgentScope's agents to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1
_HERE = "trinity_agents_agentscope"
_ENVS = "trinity.common.workflows.envs.agentscope"


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
            import_aliases=(f"{_ENVS}.agentscopev1_react_workflow",),
        ),
        "agentscopev0_react_math_workflow": ComponentSpec(
            "trinity_agents_agentscope.react_math:AgentScopeV0ReactMathWorkflow",
            summary="the same in five calls, by the name that files for AgentScope 0 have",
            import_aliases=(f"{_ENVS}.agentscopev0_react_workflow",),
        ),
        "agentscope_react_workflow": ComponentSpec(
            "trinity_agents_agentscope.react_workflow:AgentScopeReActWorkflow",
            summary="AgentScope's ReActAgent answers by a structure, which a reward looks at",
            aliases=("as_react_workflow",),
            import_aliases=("trinity.common.workflows.agentscope.react.react_workflow",),
        ),
        "agentscope_v1_react_search_workflow": ComponentSpec(
            "trinity_agents_agentscope.search:AgentScopeV1ReactSearchWorkflow",
            summary="AgentScope's ReActAgent with the tools of a search server; a judge compares",
            needs=frozenset({"auxiliary_models"}),
            import_aliases=(f"{_ENVS}.agentscopev1_search_workflow",),
        ),
        "agentscope_frozen_lake_workflow": ComponentSpec(
            "trinity_agents_agentscope.frozen_lake:FrozenLakeWorkflow",
            summary="AgentScope's ReActAgent walks to the goal on a frozen lake",
            aliases=("examples.agentscope_frozenlake.workflow.FrozenLakeWorkflow",),
        ),
    }


@hookimpl
def trinity_published_modules() -> dict[str, str]:
    """Return the modules that are found under Trinity-RFT's import paths."""
    return {
        "trinity.common.workflows.agentscope.react.react_agent": f"{_HERE}.react_agent",
        "trinity.common.workflows.agentscope.react.templates": f"{_HERE}.templates",
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
