"""Name the monitors to Trinity."""

from __future__ import annotations

from trinity.extend import AssetSpec, ComponentSpec, hookimpl

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_monitors() -> dict[str, ComponentSpec]:
    """Return the monitors; the packages they write with are extras of this distribution."""
    return {
        "wandb": ComponentSpec(
            "trinity_monitors.wandb_monitor:WandbMonitor",
            summary="a run of Weights & Biases for each role",
            provides=frozenset({"samples"}),
        ),
        "mlflow": ComponentSpec(
            "trinity_monitors.mlflow_monitor:MlflowMonitor",
            summary="a run of MLflow for each role",
            provides=frozenset({"samples"}),
        ),
    }


@hookimpl
def trinity_assets() -> list[AssetSpec]:
    """Return the packages and the server that the checks of both monitors need."""
    return [
        AssetSpec(
            "wandb",
            "the package wandb",
            "30 MB",
            "trinity_monitors.assets:missing_wandb",
            needed_by=("monitor/wandb",),
        ),
        AssetSpec(
            "mlflow",
            "the package mlflow, and a server or a store",
            "100 MB",
            "trinity_monitors.assets:missing_mlflow",
            needed_by=("monitor/mlflow",),
        ),
    ]
