"""``cluster``: the machines of the run."""

from __future__ import annotations

from trinity.common.config.base import StrictModel, machine, other

__all__ = ["ClusterConfig"]


class ClusterConfig(StrictModel):
    """``cluster``: the machines of the run."""

    ray_address: str = other("auto", "address of the Ray cluster", used_by="runs on Ray")
    node_num: int = machine(0, "machines; 0: as many as there are", ge=0)
    gpu_per_node: int = machine(0, "GPUs of each machine; 0: as many as there are", ge=0)
