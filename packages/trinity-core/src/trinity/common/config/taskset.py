"""Where tasks come from: ``buffer.explorer_input.taskset`` and what stands below it."""

# ruff: noqa: FBT003 -- the default comes first, as in pydantic
from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any, Literal

from pydantic import AliasChoices

from trinity.common.config.base import Lowercase, StrictModel, core, not_yet, other, section

__all__ = ["DataSelectorConfig", "FormatConfig", "GenerationConfig", "TasksetConfig"]

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
