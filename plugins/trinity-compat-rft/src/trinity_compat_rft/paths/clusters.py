"""``trinity.utils.dlc_utils``: Ray on the machines of a cloud's job.

Programs import these names always and call them only inside such a job.
"""

from __future__ import annotations

from typing import NoReturn

from trinity.errors import NotSupportedYetError

__all__ = ["setup_ray_cluster", "stop_ray_cluster"]


def setup_ray_cluster(namespace: str) -> NoReturn:
    """Refuse: a run starts Ray on this machine alone, or joins one.

    Raises:
        NotSupportedYetError: always, with what to do.
    """
    raise NotSupportedYetError(
        f"setup_ray_cluster({namespace!r}) of Trinity-RFT starts Ray on all machines of a DLC job, "
        "which is not supported yet. Start Ray yourself: `ray start --head --port=6379` on the "
        "first machine, `ray start --address=FIRST:6379` on the others; then set "
        "cluster.ray_address, and leave USE_ALIYUN_PAI_DLC unset."
    )


def stop_ray_cluster(namespace: str) -> NoReturn:
    """Refuse: a Ray that a run joined is its owner's to stop.

    Raises:
        NotSupportedYetError: always, with what to do.
    """
    raise NotSupportedYetError(
        f"stop_ray_cluster({namespace!r}) of Trinity-RFT ends Ray on all machines of a DLC job, "
        "which is not supported yet. Run `ray stop` on each machine."
    )
