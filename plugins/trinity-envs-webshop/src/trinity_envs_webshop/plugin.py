"""Name the workflows and the data of WebShop to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> dict[str, ComponentSpec]:
    """Return the multi-turn workflow and its step-wise twin."""
    return {
        "webshop_workflow": ComponentSpec(
            "trinity_envs_webshop.workflow:WebShopWorkflow",
            summary="shop for what a customer wants; the whole session is one experience",
            import_aliases=("trinity.common.workflows.envs.webshop.webshop_workflow",),
        ),
        "step_wise_webshop_workflow": ComponentSpec(
            "trinity_envs_webshop.step_wise:StepWiseWebShopWorkflow",
            summary="the same, each step an experience of its own",
        ),
    }


@hookimpl
def trinity_assets() -> list[AssetSpec]:
    """Return the data that the shop sells from."""
    return [
        AssetSpec(
            name="webshop",
            what="WebShop's three data files, with their search index beside them",
            size="5 MB for 1,000 products, 6 GB for all 1.18 million",
            check="trinity_envs_webshop.assets:missing",
            fetch="trinity_envs_webshop.assets:fetch",
        )
    ]
