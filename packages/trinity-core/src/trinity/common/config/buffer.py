"""``buffer``: tasks in, experiences between, batches out."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices

from trinity.common.config.base import Lowercase, StrictModel, core, other, section
from trinity.common.config.taskset import DataSelectorConfig, FormatConfig, TasksetConfig

__all__ = [
    "BufferConfig",
    "ExperienceBufferConfig",
    "ExplorerInput",
    "ReplayBufferConfig",
    "TrainerInput",
]

_SQL = "storage sql"


class ReplayBufferConfig(StrictModel):
    """``replay_buffer``: hand out experiences by priority instead of in order."""

    enable: bool = core(False, "use priorities; read by the experience buffer of a queue")
    priority_fn: str = core("linear_decay", "the priority function", switch="enable")
    reuse_cooldown_time: float | None = core(
        None, "seconds until an experience may be used again; None: never", switch="enable", ge=0
    )
    priority_fn_args: dict[str, Any] = core(
        {"decay": 2.0}, "arguments of the priority function", switch="enable"
    )


class ExperienceBufferConfig(StrictModel):
    """A store of experiences between explorer and trainer, or a file of rows to train on."""

    name: str = core("", "name of the buffer; default: experience_buffer")
    storage_type: Annotated[str, Lowercase] = core(
        "queue", "the storage: queue, file, sql, or a plugin's"
    )
    path: str | None = core(
        None,
        "of file storage: file, folder or Hugging Face id; of sql: sqlite:///FILE or "
        "postgresql://USER@HOST/NAME, default: buffer/ledger.db in the run directory",
    )
    keep_bodies: Annotated[Literal["untrained", "all"], Lowercase] = other(
        "untrained",
        "what a ledger keeps the contents of: what a checkpoint may need again, or all",
        used_by=_SQL,
    )
    capacity: int = core(
        10000,
        "most batches that wait in a queue before writing waits, or a replay buffer gives some up",
        ge=1,
    )
    max_read_timeout: float = core(1800, "seconds that reading a batch may wait", gt=0)
    replay_buffer: ReplayBufferConfig = section(ReplayBufferConfig, "priorities")
    max_retry_times: int = other(3, "attempts to read or write", used_by=_SQL, ge=0)
    max_retry_interval: int = other(1, "seconds between attempts", used_by=_SQL, ge=0)
    split: str = core("train", "part of the dataset")
    subset_name: str | None = core(None, "configuration of the dataset")
    format: FormatConfig = section(FormatConfig, "the columns of supervised rows")
    enable_progress_bar: bool | None = other(
        False, "show how far reading is", used_by="interactive readers"
    )
    data_selector: DataSelectorConfig = section(DataSelectorConfig, "the order of the rows")
    schema_type: Annotated[str, Lowercase] | None = core(
        None, "what the rows are (experience, sft, dpo); default: what the algorithm trains on"
    )
    total_epochs: int = core(
        1, "passes over the rows of a file; default: buffer.total_epochs", ge=1
    )
    total_steps: int | None = core(
        None, "train steps over the rows of a file; default: buffer.total_steps", ge=1
    )


class ExplorerInput(StrictModel):
    """``buffer.explorer_input``: the tasks."""

    taskset: TasksetConfig | None = core(
        None,
        "the training tasks",
        validation_alias=AliasChoices("taskset", "task_set"),
    )
    tasksets: list[TasksetConfig] = core([], "several sets of training tasks, taken in turn")
    eval_tasksets: list[TasksetConfig] = core([], "sets of evaluation tasks")
    default_workflow_type: str | None = core(
        None,
        "the workflow of sets that name none",
        validation_alias=AliasChoices("default_workflow_type", "default_workflow"),
    )
    default_eval_workflow_type: str | None = core(
        None, "the workflow of evaluation sets that name none"
    )
    default_reward_fn_type: str | None = core(None, "the reward function of sets that name none")


class TrainerInput(StrictModel):
    """``buffer.trainer_input``: what the trainer reads."""

    experience_buffer: ExperienceBufferConfig | None = core(
        None, "the buffer between explorer and trainer; default: a queue"
    )
    auxiliary_buffers: dict[str, ExperienceBufferConfig] = core(
        {}, "further files of rows by name, for strategies that mix; read round and round"
    )


class BufferConfig(StrictModel):
    """``buffer``: how much is read, and from where."""

    batch_size: int = core(1, "tasks of one explore step", ge=1)
    train_batch_size: int = core(
        0, "experiences of one train step; 0: batch_size x repeat_times", ge=0
    )
    total_epochs: int = core(1, "passes over the training tasks", ge=1)
    total_steps: int | None = core(None, "explore steps; wins over total_epochs", ge=1)
    record_samples: bool = core(True, "keep what each train step trained, to look at it later")
    max_samples_gb: float = core(
        1.0, "gigabytes of that in the run directory; the oldest go first", gt=0
    )
    explorer_input: ExplorerInput = section(ExplorerInput, "the tasks")
    trainer_input: TrainerInput = section(TrainerInput, "what the trainer reads")
