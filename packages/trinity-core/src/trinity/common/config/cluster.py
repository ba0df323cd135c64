"""``cluster``: the machines of the run."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator

from trinity.common.config.base import StrictModel, machine, other

__all__ = ["ClusterConfig"]

#: null means the same as 0
_Count = Annotated[int, BeforeValidator(lambda value: 0 if value is None else value)]


class ClusterConfig(StrictModel):
    """``cluster``: the machines of the run."""

    ray_address: str = other("auto", "address of the Ray cluster", used_by="runs on Ray")
    node_num: _Count = machine(0, "machines; 0: as many as there are", ge=0)
    gpu_per_node: _Count = machine(0, "GPUs of each machine; 0: as many as there are", ge=0)
