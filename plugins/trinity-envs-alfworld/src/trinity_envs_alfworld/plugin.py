"""Name the workflows and the games of ALFWorld to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> dict[str, ComponentSpec]:
    """Return the multi-turn workflow and its step-wise twin."""
    return {
        "alfworld_workflow": ComponentSpec(
            "trinity_envs_alfworld.workflow:AlfworldWorkflow",
            summary="do a household task in text; the whole conversation is one experience",
            import_aliases=("trinity.common.workflows.envs.alfworld.alfworld_workflow",),
        ),
        "step_wise_alfworld_workflow": ComponentSpec(
            "trinity_envs_alfworld.step_wise:StepWiseAlfworldWorkflow",
            summary="the same, each step an experience of its own",
        ),
    }


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
