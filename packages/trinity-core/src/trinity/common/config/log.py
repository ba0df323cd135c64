"""``log``: what is logged."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trinity.common.config.base import StrictModel, core, other

__all__ = ["LogConfig"]


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


class LogConfig(StrictModel):
    """``log``: what is logged."""

    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
    ] = core("INFO", "the least severe messages that are shown")
    group_by_node: bool = other(False, "one folder of logs per machine", used_by="runs on Ray")
