"""``stages``: several trainings, one after the other."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trinity.common.config.algorithm import AlgorithmConfig
from trinity.common.config.base import Lowercase, StrictModel, core
from trinity.common.config.buffer import BufferConfig
from trinity.common.config.data_processor import DataProcessorConfig
from trinity.common.config.explorer import ExplorerConfig
from trinity.common.config.trainer import TrainerConfig

__all__ = ["Mode", "StageConfig"]

Mode = Literal["both", "explore", "train", "bench", "serve", "colocate"]


class StageConfig(StrictModel):
    """One entry of ``stages``: a section given here replaces the global one whole."""

    stage_name: str = Field(
        description="name of the stage, the end of its run directory",
        min_length=1,
        json_schema_extra={"status": "core"},
    )
    mode: Annotated[Mode, Lowercase] | None = core(None, "what the stage does")
    algorithm: AlgorithmConfig | None = core(None, "the stage's algorithm")
    buffer: BufferConfig | None = core(None, "the stage's buffer")
    data_processor: DataProcessorConfig | None = core(None, "the stage's data_processor")
    explorer: ExplorerConfig | None = core(None, "the stage's explorer")
    trainer: TrainerConfig | None = core(None, "the stage's trainer")
