"""``buffer`` and ``data_processor``: tasks in, experiences between, batches out."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices

from trinity.common.config.base import Lowercase, StrictModel, core, not_yet, other, section

__all__ = [
    "BufferConfig",
    "DataProcessorConfig",
    "DataSelectorConfig",
    "ExperienceBufferConfig",
    "ExperiencePipelineConfig",
    "ExplorerInput",
    "FormatConfig",
    "GenerationConfig",
    "OperatorConfig",
    "ReplayBufferConfig",
    "TaskPipelineConfig",
    "TasksetConfig",
    "TrainerInput",
]


_SQL = "tasksets in SQL"


class FormatConfig(StrictModel):
    """``format``: which column of a dataset holds what."""

    prompt_type: Annotated[Literal["messages", "plaintext", "chatpair"], Lowercase] = core(
        "messages", "form of supervised rows: a list of messages, or two texts"
    )
    prompt_key: str = core("prompt", "column of the prompt")
    response_key: str = core("response", "column of the answer")
    system_prompt_key: str | None = core(None, "column of the system prompt")
    system_prompt: str | None = core(None, "one system prompt for all rows")
    messages_key: str = core("message", "column of the messages of supervised rows")
    tools_key: str = core("tools", "column of the tools of supervised rows")
    image_key: str | None = not_yet(None, "column of images")
    video_key: str | None = not_yet(None, "column of videos")
    reply_prefix: str | None = core(None, "text that the answer begins with")
    workflow_key: str = core("", "column that names the workflow of a row")
    reward_fn_key: str = core("", "column that names the reward function of a row")
    chosen_key: str = core("chosen", "column of the preferred answer")
    rejected_key: str = core("rejected", "column of the other answer")
    enable_concatenated_multi_turn: bool = core(
        False, "train on every assistant message of a supervised row, not on the last only"
    )
    chat_template: str | None = core(None, "chat template (Jinja) for these rows")
    enable_thinking: bool | None = core(None, "thinking switch of the chat template for these rows")


class GenerationConfig(StrictModel):
    """``rollout_args``: how the model generates for these tasks. Unset: as ``model`` says."""

    temperature: float | None = core(None, "sampling temperature; default: model's", ge=0)
    top_p: float | None = core(None, "part of the likely tokens; default: model's", gt=0, le=1)
    top_k: int = core(-1, "number of likely tokens; default: model's; -1: all", ge=-1)
    logprobs: int | None = other(
        None,
        "alternatives per token to return; those of its own tokens every reply has",
        used_by="engines that return alternatives",
        ge=0,
    )
    max_tokens: int | None = core(
        None, "most tokens of a response; default: model.max_response_tokens", ge=1
    )
    n: int = core(1, "responses to one prompt; follows from repeat_times", ge=1)


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
    feature_keys: list[str] = core([], "columns of numbers that the selector looks at")
    kwargs: dict[str, Any] = core({}, "arguments of the selector")


class TasksetConfig(StrictModel):
    """A set of tasks: where its rows are, and which workflow runs them."""

    name: str = core("", "name in metrics; default: taskset, or eval_taskset with its number")
    storage_type: Annotated[Literal["file", "sql"], Lowercase] = not_yet(
        "file", "where the rows are", values=("sql",)
    )
    path: str | None = core(None, "file, folder or Hugging Face id of the dataset")
    default_workflow_type: str | None = core(
        None,
        "the workflow of rows that name none",
        validation_alias=AliasChoices("default_workflow_type", "default_workflow"),
    )
    default_reward_fn_type: str | None = core(None, "the reward function of rows that name none")
    rollout_args: GenerationConfig = section(GenerationConfig, "how the model generates")
    workflow_args: dict[str, Any] = core({}, "arguments of the workflow; may hold Python objects")
    reward_fn_args: dict[str, Any] = core({}, "arguments of the reward function")
    task_selector: DataSelectorConfig | None = core(None, "older name of data_selector")
    data_selector: DataSelectorConfig = section(DataSelectorConfig, "the order of the rows")
    split: str = core("train", "part of the dataset")
    subset_name: str | None = core(None, "configuration of the dataset")
    format: FormatConfig = section(FormatConfig, "the columns")
    max_retry_times: int = other(3, "attempts to read", used_by=_SQL, ge=0)
    max_retry_interval: int = other(1, "seconds between attempts to read", used_by=_SQL, ge=0)
    enable_progress_bar: bool = other(
        False, "show how far reading is", used_by="interactive readers"
    )
    repeat_times: int = core(
        1, "runs of each evaluation task (k of mean@k); training sets follow the algorithm", ge=1
    )


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
