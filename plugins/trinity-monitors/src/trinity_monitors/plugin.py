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
        "trackio": ComponentSpec(
            "trinity_monitors.trackio_monitor:TrackioMonitor",
            summary="a run of Trackio for each role, on this machine or in a Space",
            provides=frozenset({"samples"}),
        ),
        "swanlab": ComponentSpec(
            "trinity_monitors.swanlab_monitor:SwanlabMonitor",
            summary="one run of SwanLab for all roles",
        ),
    }


@hookimpl
def trinity_assets() -> list[AssetSpec]:
    """Return the packages and the server that the checks of the monitors need."""
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
        AssetSpec(
            "trackio",
            "the package trackio",
            "200 MB",
            "trinity_monitors.assets:missing_trackio",
            needed_by=("monitor/trackio",),
        ),
        AssetSpec(
            "swanlab",
            "the package swanlab",
            "60 MB",
            "trinity_monitors.assets:missing_swanlab",
            needed_by=("monitor/swanlab",),
        ),
    ]
