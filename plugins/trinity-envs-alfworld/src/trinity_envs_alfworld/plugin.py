"""Name the workflows and the games of ALFWorld to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1

_PUBLISHED = "trinity.common.workflows.envs.alfworld"


@hookimpl
def trinity_workflows() -> dict[str, ComponentSpec]:
    """Return the multi-turn workflow, its step-wise twin, and those that imitate what was won."""
    return {
        "alfworld_workflow": ComponentSpec(
            "trinity_envs_alfworld.workflow:AlfworldWorkflow",
            summary="do a household task in text; the whole conversation is one experience",
            import_aliases=(f"{_PUBLISHED}.alfworld_workflow",),
        ),
        "step_wise_alfworld_workflow": ComponentSpec(
            "trinity_envs_alfworld.step_wise:StepWiseAlfworldWorkflow",
            summary="the same, each step an experience of its own",
            import_aliases=(f"{_PUBLISHED}.alfworld_workflow",),
        ),
        "RAFT_alfworld_workflow": ComponentSpec(
            "trinity_envs_alfworld.raft:RAFTAlfworldWorkflow",
            summary="the same in three parts a reply; only a play that is won is imitated",
            import_aliases=(f"{_PUBLISHED}.RAFT_alfworld_workflow",),
        ),
        "RAFT_reflect_alfworld_workflow": ComponentSpec(
            "trinity_envs_alfworld.raft_reflect:RAFTReflectAlfworldWorkflow",
            summary="the same; a lost game is played again, knowing the first play",
            import_aliases=(f"{_PUBLISHED}.RAFT_reflect_alfworld_workflow",),
        ),
    }


@hookimpl
def trinity_published_modules() -> dict[str, str]:
    """Return the module that is found under Trinity-RFT's import path."""
    return {f"{_PUBLISHED}.RAFT_utils": "trinity_envs_alfworld.raft_utils"}


@hookimpl
def trinity_assets() -> list[AssetSpec]:
    """Return the games, and the engine that plays them."""
    return [
        AssetSpec(
            name="alfworld",
            what="ALFWorld's games: 3,553 to train on, 140 and 134 to evaluate on",
            size="about 0.5 GB fetched, 2 GB unpacked; 80 KB for each invented game",
            check="trinity_envs_alfworld.assets:missing",
            fetch="trinity_envs_alfworld.assets:fetch",
        )
    ]
