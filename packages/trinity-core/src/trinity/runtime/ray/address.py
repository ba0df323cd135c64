"""Where the Ray of a run is, and what has to stand in the environment to speak to it."""

from __future__ import annotations

import os
import secrets
import socket
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.config import Config
    from trinity.runtime.ray.head import Head

__all__ = ["cluster_address", "ray_settings"]

REACH_TIMEOUT_S = 5.0

# What our own cluster does without, and how long its processes wait for one that is gone.
_QUIET = {
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
}


def cluster_address(config: Config) -> str:
    """Return the host:port of the cluster to join; empty: there is none, start one.

    Raises:
        TrinityError: the one that is named cannot be reached.
    """
    named = os.environ.get("RAY_ADDRESS", "")
    source = "RAY_ADDRESS"
    if not named:
        named, source = config.cluster.ray_address, "cluster.ray_address"
    if named == "local":
        return ""
    if named not in {"", "auto"}:
        _refuse_unreachable(named, source=source)
        return named
    noted = _noted_address()
    return noted if noted and not _unreachable(noted) else ""


def _noted_address() -> str:
    """Return what ``ray start --head`` noted on this machine, alive or not."""
    folder = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray")
    try:
        return (folder / "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _refuse_unreachable(address: str, *, source: str) -> None:
    remedy = (
        "Start it with ray start --head, correct the address, or leave it out: "
        "a run without one starts its own Ray."
    )
    if "://" in address or not address.rpartition(":")[2].isdigit():
        raise TrinityError(f"{source} is {address!r}, not a host:port of a Ray head. {remedy}")
    why = _unreachable(address)
    if why:
        raise TrinityError(f"no Ray cluster answers at {address} ({source}): {why}. {remedy}")


def _unreachable(address: str) -> str:
    """Return why nothing can be reached there; empty: something listens."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def ray_settings(head: Head | None) -> Mapping[str, str]:
    """Return what must stand in the environment while Ray runs.

    Args:
        head: of the cluster to join; None: our own is started.
    """
    settings = {"RAY_USAGE_STATS_ENABLED": "0"}
    if head is None or head.is_here:
        settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # its word for: bind the loopback only
    if head is not None:
        return settings | {"RAY_AUTH_MODE": "token" if head.asks_for_token else "disabled"}
    settings["RAY_AUTH_MODE"] = "token"
    if not _has_token():
        settings["RAY_AUTH_TOKEN"] = _token()
    return settings | {name: value for name, value in _QUIET.items() if name not in os.environ}


def _has_token() -> bool:
    in_environment = any(os.environ.get(f"RAY_AUTH_TOKEN{end}") for end in ("", "_PATH"))
    return in_environment or Path("~/.ray/auth_token").expanduser().is_file()


@cache
def _token() -> str:
    """Return the token of this process's own clusters; it is written nowhere."""
    return secrets.token_hex(32)
