"""``data_processor``: what happens to tasks, and to experiences before they are stored."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from typing import Any

from trinity.common.config.base import StrictModel, core, not_yet, section
from trinity.common.config.buffer import ExperienceBufferConfig
from trinity.common.config.taskset import TasksetConfig

__all__ = [
    "DataProcessorConfig",
    "ExperiencePipelineConfig",
    "OperatorConfig",
    "TaskPipelineConfig",
]


class OperatorConfig(StrictModel):
    """One operator of a pipeline."""

    name: str = core("", "the operator")
    args: dict[str, Any] = core({}, "its arguments")


class TaskPipelineConfig(StrictModel):
    """``data_processor.task_pipeline``: make or order tasks before the run."""

    operators: list[OperatorConfig] = not_yet([], "the operators, in order")
    num_process: int = not_yet(4, "processes to run them in", ge=1)
    config_path: str | None = not_yet(None, "file that lists the operators instead")
    inputs: list[str] = not_yet([], "files to read")
    output: TasksetConfig | None = not_yet(None, "where to write; default: the taskset")
    target_fields: list[str] = not_yet([], "columns to work on")
    priority_weights: dict[str, float] = not_yet({}, "weights of difficulty, diversity, ...")
    top_k: int = not_yet(-1, "tasks to keep; -1: all")


class ExperiencePipelineConfig(StrictModel):
    """``data_processor.experience_pipeline``: filter and shape experiences on their way."""

    operators: list[OperatorConfig] = core([], "the operators, in order")
    save_input: bool = core(True, "keep what the workflows returned, before the operators")
    input_save_path: str | None = core(
        None, "file to keep it in; default: in the run directory's buffer folder"
    )
    inputs: dict[str, ExperienceBufferConfig] = not_yet({}, "further buffers to read")
    output: ExperienceBufferConfig | None = not_yet(None, "another buffer to write to")


class DataProcessorConfig(StrictModel):
    """``data_processor``: the two pipelines."""

    task_pipeline: TaskPipelineConfig | None = not_yet(None, "operators on tasks, before the run")
    experience_pipeline: ExperiencePipelineConfig = section(
        ExperiencePipelineConfig, "operators on experiences, during the run"
    )
