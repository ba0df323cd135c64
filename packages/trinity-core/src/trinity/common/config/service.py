"""``service``: services beside the run."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from trinity.common.config.base import StrictModel, not_yet

__all__ = ["DataJuicerServiceConfig", "ServiceConfig"]


class DataJuicerServiceConfig(StrictModel):
    """``service.data_juicer``: the Data-Juicer service."""

    server_url: str | None = not_yet(None, "address of the service")
    auto_start: bool = not_yet(False, "start it with the run")
    port: int | None = not_yet(None, "port to start it at")


class ServiceConfig(StrictModel):
    """``service``: services beside the run."""

    data_juicer: DataJuicerServiceConfig | None = not_yet(None, "the Data-Juicer service")
