"""``buffer`` and ``data_processor``: tasks in, experiences between, batches out."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices

from trinity.common.config.base import Lowercase, StrictModel, core, not_yet, other, section

_SQL = "tasksets in SQL"
STORED = "experience_buffer in mode train"


class FormatConfig(StrictModel):
    """``format``: which column of a dataset holds what."""

    prompt_type: Annotated[Literal["messages", "plaintext", "chatpair"], Lowercase] = core(
        "messages", "format of supervised rows: a list of messages, or two texts"
    )
    prompt_key: str = core("prompt", "column of the prompt")
    response_key: str = core("response", "column of the answer")
    system_prompt_key: str | None = core(None, "column of the system prompt")
    system_prompt: str | None = core(None, "one system prompt for all rows")
    messages_key: str = core("message", "column of the messages of supervised rows")
    tools_key: str = core("tools", "column of the tools of supervised rows")
    image_key: str | None = not_yet(None, "column of images")
    video_key: str | None = not_yet(None, "column of videos")
    reply_prefix: str | None = core(None, "prefix of each response")
    workflow_key: str = core("", "column that names the workflow of a row")
    reward_fn_key: str = core("", "column that names the reward function of a row")
    chosen_key: str = core("chosen", "column of the preferred answer")
    rejected_key: str = core("rejected", "column of the rejected answer")
    enable_concatenated_multi_turn: bool = core(
        False, "train on every assistant message of a supervised row instead of the last"
    )
    chat_template: str | None = core(None, "chat template (Jinja) for these rows")
    enable_thinking: bool | None = core(None, "thinking mode of the chat template for these rows")


class GenerationConfig(StrictModel):
    """``rollout_args``: sampling parameters for these tasks; default: those of ``model``."""

    temperature: float | None = core(None, "sampling temperature; default: model's", ge=0)
    top_p: float | None = core(None, "top-p (nucleus) sampling; default: model's", gt=0, le=1)
    top_k: int = core(-1, "top-k sampling; default: model's; -1: all", ge=-1)
    logprobs: int | None = other(
        None,
        "log-probabilities of alternatives per token; sampled tokens always have theirs",
        used_by="engines that return alternatives",
        ge=0,
    )
    max_tokens: int | None = core(
        None, "maximum tokens of a response; default: model.max_response_tokens", ge=1
    )
    n: int = core(1, "responses per prompt; set by repeat_times", ge=1)


for _section in (FormatConfig, GenerationConfig):  # dataclasses.asdict takes them, as published
    _names = list(_section.model_fields)
    setattr(  # noqa: B010 -- no attribute that a type knows
        _section,
        "__dataclass_fields__",
        make_dataclass("Fields", _names).__dataclass_fields__,  # type: ignore[attr-defined]
    )


class DataSelectorConfig(StrictModel):
    """``data_selector``: the order in which rows are taken."""

    selector_type: str | None = core("sequential", "the selector, a name of a task_selector")
    seed: int | None = core(None, "seed of the order; default: the run's seed")
    feature_keys: list[str] = core([], "numeric columns for the selector")
    kwargs: dict[str, Any] = core({}, "arguments of the selector")


class TasksetConfig(StrictModel):
    """A set of tasks: its rows, and the workflow that runs them."""

    name: str = core("", "name in metrics; default: taskset, or eval_taskset with its number")
    storage_type: Annotated[Literal["file", "sql"], Lowercase] = not_yet(
        "file", "storage of the rows", values=("sql",)
    )
    path: str | None = core(None, "file, folder or Hugging Face id of the dataset")
    default_workflow_type: str | None = core(
        None,
        "default workflow",
        validation_alias=AliasChoices("default_workflow_type", "default_workflow"),
    )
    default_reward_fn_type: str | None = core(None, "default reward function")
    rollout_args: GenerationConfig = section(GenerationConfig, "sampling parameters")
    workflow_args: dict[str, Any] = core({}, "arguments of the workflow; may hold Python objects")
    reward_fn_args: dict[str, Any] = core({}, "arguments of the reward function")
    task_selector: DataSelectorConfig | None = core(None, "older name of data_selector")
    data_selector: DataSelectorConfig = section(DataSelectorConfig, "the order of the rows")
    split: str = core("train", "split of the dataset, or a part of one: train[:95%], train[95%:]")
    subset_name: str | None = core(None, "configuration of the dataset")
    format: FormatConfig = section(FormatConfig, "the columns")
    max_retry_times: int = other(3, "attempts to read", used_by=_SQL, ge=0)
    max_retry_interval: int = other(1, "seconds between attempts to read", used_by=_SQL, ge=0)
    enable_progress_bar: bool = other(False, "show a progress bar", used_by="interactive readers")
    repeat_times: int = core(
        1,
        "rollouts per evaluation task (k of mean@k); training tasks use algorithm.repeat_times",
        ge=1,
    )


_SQL = "storage sql"


class ReplayBufferConfig(StrictModel):
    """``replay_buffer``: draw experiences by priority instead of in order."""

    enable: bool = core(False, "draw by priority; only for storage_type queue")
    priority_fn: str = core("linear_decay", "the priority function", switch="enable")
    reuse_cooldown_time: float | None = core(
        None, "seconds until an experience may be used again; None: never", switch="enable", ge=0
    )
    priority_fn_args: dict[str, Any] = core(
        {"decay": 2.0}, "arguments of the priority function", switch="enable"
    )


class ExperienceBufferConfig(StrictModel):
    """The storage between explorer and trainer, or a file of rows to train on."""

    name: str = core("", "name of the buffer; default: experience_buffer")
    storage_type: Annotated[str, Lowercase] = core(
        "queue", "the storage: queue, file, sql, or a plugin's"
    )
    path: str | None = core(
        None,
        "file: a file, folder or Hugging Face id; sql: sqlite:///FILE or "
        "postgresql://USER@HOST/NAME, default: buffer/ledger.db in the run directory",
    )
    keep_bodies: Annotated[Literal["untrained", "all"], Lowercase] = other(
        "untrained",
        "experiences whose contents a ledger keeps: those that a checkpoint may need, or all",
        used_by=_SQL,
    )
    keep_steps: int = other(
        10_000,
        "train steps before the oldest checkpoint whose rows a ledger keeps, if keep_bodies is "
        "untrained; of an older step it keeps the counts",
        used_by=_SQL,
        ge=0,
    )
    capacity: int = core(
        10000,
        "maximum batches in a queue before writing blocks, or in a replay buffer before it evicts",
        ge=1,
    )
    max_read_timeout: float = core(1800, "timeout of reading a batch, in seconds", gt=0)
    replay_buffer: ReplayBufferConfig = section(ReplayBufferConfig, "drawing by priority")
    max_retry_times: int = other(3, "attempts to read or write", used_by=_SQL, ge=0)
    max_retry_interval: int = other(1, "seconds between attempts", used_by=_SQL, ge=0)
    split: str = core("train", "split of the dataset, or a part of one: train[:95%], train[95%:]")
    subset_name: str | None = core(None, "configuration of the dataset")
    format: FormatConfig = section(FormatConfig, "the columns of supervised rows")
    enable_progress_bar: bool | None = other(
        False, "show a progress bar", used_by="interactive readers"
    )
    data_selector: DataSelectorConfig = section(DataSelectorConfig, "the order of the rows")
    schema_type: Annotated[str, Lowercase] | None = core(
        None, "type of the rows (experience, sft, dpo); default: the algorithm's"
    )
    total_epochs: int = other(
        1, "epochs over the stored rows; default: buffer.total_epochs", used_by=STORED, ge=1
    )
    total_steps: int | None = other(
        None, "train steps of the run; default: buffer.total_steps", used_by=STORED, ge=1
    )


class ExplorerInput(StrictModel):
    """``buffer.explorer_input``: the tasks."""

    taskset: TasksetConfig | None = core(
        None,
        "the training tasks",
        validation_alias=AliasChoices("taskset", "task_set"),
    )
    tasksets: list[TasksetConfig] = core([], "several sets of training tasks, used in turn")
    eval_tasksets: list[TasksetConfig] = core([], "sets of evaluation tasks")
    default_workflow_type: str | None = core(
        None,
        "default workflow of tasksets",
        validation_alias=AliasChoices("default_workflow_type", "default_workflow"),
    )
    default_eval_workflow_type: str | None = core(None, "default workflow of evaluation tasksets")
    default_reward_fn_type: str | None = core(None, "default reward function of tasksets")


class TrainerInput(StrictModel):
    """``buffer.trainer_input``: the input of the trainer."""

    experience_buffer: ExperienceBufferConfig | None = core(
        None, "the buffer between explorer and trainer; default: a queue"
    )
    auxiliary_buffers: dict[str, ExperienceBufferConfig] = core(
        {}, "further files of rows by name, for sample strategies that mix; repeated without end"
    )


class BufferConfig(StrictModel):
    """``buffer``: tasks, experiences and batch sizes."""

    batch_size: int = core(1, "tasks per explore step", ge=1)
    train_batch_size: int = core(
        0, "experiences per train step; 0: batch_size x repeat_times", ge=0
    )
    total_epochs: int = core(1, "epochs over the training tasks", ge=1)
    total_steps: int | None = core(None, "explore steps; overrides total_epochs", ge=1)
    record_samples: bool = core(True, "save the samples of each train step for `trinity view`")
    max_samples_gb: float = core(
        1.0, "maximum size of saved samples in GB; the oldest are deleted first", gt=0
    )
    explorer_input: ExplorerInput = section(ExplorerInput, "the tasks")
    trainer_input: TrainerInput = section(TrainerInput, "the input of the trainer")


class OperatorConfig(StrictModel):
    """One operator of a pipeline."""

    name: str = core("", "the operator")
    args: dict[str, Any] = core({}, "its arguments")


class TaskPipelineConfig(StrictModel):
    """``data_processor.task_pipeline``: create or order tasks before the run."""

    operators: list[OperatorConfig] = not_yet([], "the operators, in order")
    num_process: int = not_yet(4, "processes to run them in", ge=1)
    config_path: str | None = not_yet(None, "file that lists the operators")
    inputs: list[str] = not_yet([], "files to read")
    output: TasksetConfig | None = not_yet(None, "where to write; default: the taskset")
    target_fields: list[str] = not_yet([], "columns to work on")
    priority_weights: dict[str, float] = not_yet({}, "weights of difficulty, diversity, ...")
    top_k: int = not_yet(-1, "tasks to keep; -1: all")


class ExperiencePipelineConfig(StrictModel):
    """``data_processor.experience_pipeline``: filter and change experiences before storage."""

    operators: list[OperatorConfig] = core([], "the operators, in order")
    save_input: bool = core(True, "save the experiences of workflows, before the operators")
    input_save_path: str | None = core(
        None, "file for them; default: in the buffer folder of the run directory"
    )
    max_input_gb: float = core(
        1.0,
        "maximum size of this file and of the older half beside it; the oldest are deleted",
        gt=0,
    )
    inputs: dict[str, ExperienceBufferConfig] = not_yet({}, "further buffers to read")
    output: ExperienceBufferConfig | None = not_yet(None, "another buffer to write to")


class DataProcessorConfig(StrictModel):
    """``data_processor``: the two pipelines."""

    task_pipeline: TaskPipelineConfig | None = not_yet(None, "operators on tasks, before the run")
    experience_pipeline: ExperiencePipelineConfig = section(
        ExperiencePipelineConfig, "operators on experiences, during the run"
    )
