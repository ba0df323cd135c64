"""The HTTP endpoints of a process that runs workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.common.ports import EndpointOpener


def make_endpoints(config: Config, *, number: int = 0) -> EndpointOpener | None:
    """Return what opens the endpoints of runs; None: the configuration wants none.

    Args:
        config: a resolved configuration.
        number: of the engine that the process belongs to: each listens at a port of its own.
    """
    rollout = config.explorer.rollout_model
    if not (rollout.enable_openai_api or config.explorer.auxiliary_models):
        return None
    from trinity.endpoint.server import EndpointHost

    port = 0 if rollout.base_port is None else rollout.base_port + number
    host = config.explorer.listen_address
    return EndpointHost(
        host=host,
        port=port,
        logs_requests=rollout.enable_log_requests,
        api_key=rollout.api_key,
    )
