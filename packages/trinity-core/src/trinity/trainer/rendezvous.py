"""Bring the processes that train one model together, before they build anything.

    rank 0: Rendezvous(address)                           listens on one address of its node
    rank i: init_process_group(endpoint, rank=i, ...) --> the group, which every rank has

Nothing that they do together waits without a limit: who is missing longer is an error.
"""

from __future__ import annotations

import logging
import secrets
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

logger = logging.getLogger(__name__)

_SIOCGIFADDR = 0x8915  # Linux: the address of an interface


class Rendezvous:
    """Hosts the store by which ranks find each other; it stays as long as their group.

    Whoever reaches the port can read and write there, but knows no name of what the ranks write:
    these begin with a secret, which is a part of ``endpoint``, ``host:port/secret``.

    Args:
        address: of this node, by which the others reach it; nothing else is listened on.
        timeout_s: how long a rank may be missing.
    """

    def __init__(self, address: str, *, timeout_s: float) -> None:
        listening = socket.create_server((address, 0))
        port = listening.getsockname()[1]
        self.endpoint = f"{address}:{port}/{secrets.token_hex(16)}"
        self._store = distributed.TCPStore(  # type: ignore[attr-defined]
            address,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout_s),
            master_listen_fd=listening.detach(),
        )


def init_process_group(endpoint: str, *, rank: int, size: int, timeout_s: float) -> ProcessGroup:
    """Return the group of all ranks, once all are there: gloo, and nccl for tensors on GPUs.

    Args:
        endpoint: of the :class:`Rendezvous`.
        rank: of this process.
        size: how many there are.
        timeout_s: how long one may wait for another, now and later.

    Raises:
        TrinityError: somebody is missing.
    """
    address = endpoint.partition("/")[0]
    limit = timedelta(seconds=timeout_s)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        distributed.init_process_group(
            backend,
            store=connect(endpoint, timeout_s=timeout_s),
            rank=rank,
            world_size=size,
            timeout=limit,
        )
    except RuntimeError as error:
        raise TrinityError(
            f"rank {rank} of the trainer's {size} did not meet the others at {address} within "
            f"{timeout_s:.0f} s: {error}. Ranks on several machines must reach each other; "
            "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME name the interface that they use."
        ) from error
    logger.info("rank %d of %d, %s, at %s", rank, size, backend, address)
    group = distributed.group.WORLD
    assert group is not None
    return group


def connect(endpoint: str, *, timeout_s: float) -> Any:  # Any: half typed
    """Return the store of a :class:`Rendezvous`, behind its secret.

    Args:
        endpoint: of the rendezvous.
        timeout_s: how long one may wait for what another one writes.

    Raises:
        RuntimeError: nobody answers there.
    """
    address, _, secret = endpoint.partition("/")
    host, _, port = address.rpartition(":")
    own: Any = distributed
    store = own.TCPStore(
        host,
        int(port),
        is_master=False,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout_s),
    )
    return own.PrefixStore(secret, store)


def interface_of(address: str) -> str:
    """Return the name of the interface that has this address; empty: the system does not tell."""
    if sys.platform != "linux":
        return ""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                told = fcntl.ioctl(asked, _SIOCGIFADDR, name.encode()[:15].ljust(40, b"\0"))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(told[20:24]) == address:
                return name
    return ""


def sequence_parallel_group(
    group: distributed.ProcessGroup, *, size: int, timeout_s: float
) -> distributed.ProcessGroup:
    """Return the ranks that share a sequence with this one; all ranks of the trainer call it."""
    rank = distributed.get_rank(group)
    own: distributed.ProcessGroup | None = None
    for first in range(0, distributed.get_world_size(group), size):
        members = list(range(first, first + size))
        found = distributed.new_group(members, timeout=timedelta(seconds=timeout_s))
        own = found if rank in members else own
    assert own is not None
    return own
