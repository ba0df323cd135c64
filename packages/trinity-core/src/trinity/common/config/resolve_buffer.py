"""The sets of tasks and the buffer between explorer and trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.buffer import ExperienceBufferConfig

if TYPE_CHECKING:
    from trinity.common.config.resolve import Resolution

_INPUT = "buffer.explorer_input"
_LENGTHS = ("total_epochs", "total_steps")
_EXPERIENCES = "buffer.trainer_input.experience_buffer"


def resolve_buffer(work: Resolution) -> None:
    """Fill in the batch sizes, every set of tasks and the experience buffer."""
    buffer = work.config.buffer
    repeat_times = work.config.algorithm.repeat_times or 1
    if buffer.train_batch_size == 0 or not work.asked("buffer.train_batch_size"):
        work.fill(
            "buffer.train_batch_size",
            buffer.batch_size * repeat_times,
            origin="batch_size x repeat_times",
        )
    _fold_in_taskset(work)
    num_sets = len(buffer.explorer_input.tasksets)
    for index in range(num_sets):
        name = "taskset" if num_sets == 1 else f"taskset_{index}"
        _resolve_taskset(work, f"{_INPUT}.tasksets.{index}", name=name, is_eval=False)
    for index in range(len(buffer.explorer_input.eval_tasksets)):
        path = f"{_INPUT}.eval_tasksets.{index}"
        _resolve_taskset(work, path, name=f"eval_taskset_{index}", is_eval=True)
    _resolve_experience_buffer(work)


def _fold_in_taskset(work: Resolution) -> None:
    inputs = work.config.buffer.explorer_input
    if inputs.taskset is None:
        return
    moved = [(f"{_INPUT}.tasksets.0", f"{_INPUT}.taskset")]
    moved += [
        (f"{_INPUT}.tasksets.{index + 1}", f"{_INPUT}.tasksets.{index}")
        for index in range(len(inputs.tasksets))
    ]
    inputs.tasksets = [inputs.taskset, *inputs.tasksets]
    inputs.taskset = None
    work.config._source = work.config.source.with_moves(*moved)
    work.from_part(f"{_INPUT}.taskset", "now the first of tasksets")


def _resolve_taskset(work: Resolution, path: str, *, name: str, is_eval: bool) -> None:
    if not work.value(f"{path}.name"):
        work.fill(f"{path}.name", name, origin="default")
    _resolve_components(work, path, is_eval=is_eval)
    older = work.value(f"{path}.task_selector")
    if older is not None:
        work.note(f"{work.config.source.written(path)}.task_selector is now data_selector")
        work.default(f"{path}.data_selector", older, origin=f"{path}.task_selector")
        work.fill(f"{path}.task_selector", None, origin="now data_selector")
    work.default(f"{path}.data_selector.seed", work.config.seed, origin="seed")
    for key in ("temperature", "top_p", "top_k", "logprobs"):
        work.default(
            f"{path}.rollout_args.{key}", work.value(f"model.{key}"), origin=f"model.{key}"
        )
    work.default(
        f"{path}.rollout_args.max_tokens",
        work.config.model.max_response_tokens,
        origin="model.max_response_tokens",
    )
    if not is_eval:
        _repeat_as_the_algorithm(work, path)


def _resolve_components(work: Resolution, path: str, *, is_eval: bool) -> None:
    inputs = work.config.buffer.explorer_input
    workflow, origin = inputs.default_workflow_type, f"{_INPUT}.default_workflow_type"
    if is_eval and inputs.default_eval_workflow_type:
        workflow, origin = inputs.default_eval_workflow_type, f"{_INPUT}.default_eval_workflow_type"
    if workflow:
        work.default(f"{path}.default_workflow_type", workflow, origin=origin)
    if inputs.default_reward_fn_type:
        work.default(
            f"{path}.default_reward_fn_type",
            inputs.default_reward_fn_type,
            origin=f"{_INPUT}.default_reward_fn_type",
        )


def _repeat_as_the_algorithm(work: Resolution, path: str) -> None:
    repeat_times = work.config.algorithm.repeat_times
    if work.asked(f"{path}.repeat_times") and work.value(f"{path}.repeat_times") != repeat_times:
        written = work.config.source.written(path)
        work.note(f"requested {written}.repeat_times, using algorithm.repeat_times: {repeat_times}")
    work.fill(f"{path}.repeat_times", repeat_times, origin="algorithm.repeat_times")


def _resolve_experience_buffer(work: Resolution) -> None:
    if work.value(_EXPERIENCES) is None:
        work.fill(_EXPERIENCES, ExperienceBufferConfig(), origin="default")
    if work.config.mode == "train":
        for path, of_run in ((f"{_EXPERIENCES}.{name}", f"buffer.{name}") for name in _LENGTHS):
            value = work.value(path)
            if not work.asked(path):
                work.fill(path, work.value(of_run), origin=of_run)
                continue
            if work.asked(of_run) and work.value(of_run) != value:
                work.note(f"requested {of_run} {work.value(of_run)}, using {path}: {value}")
            work.fill(of_run, value, origin=path)
    _resolve_rows(work, _EXPERIENCES, name="experience_buffer", schema_type=work.schema_type)
    _resolve_priority_args(work, f"{_EXPERIENCES}.replay_buffer")
    for name in work.config.buffer.trainer_input.auxiliary_buffers:
        path = f"buffer.trainer_input.auxiliary_buffers.{name}"
        _resolve_rows(work, path, name=name, schema_type=("sft", "default"))


def _resolve_priority_args(work: Resolution, path: str) -> None:
    """Leave a function that was chosen without arguments to its own, not to linear_decay's."""
    own = work.value(f"{path}.priority_fn") != "linear_decay"
    if own and work.value(f"{path}.enable") and not work.asked(f"{path}.priority_fn_args"):
        work.fill(f"{path}.priority_fn_args", {}, origin="its own defaults")


def _resolve_rows(work: Resolution, path: str, *, name: str, schema_type: tuple[str, str]) -> None:
    """Fill in what a buffer is called and its rows are; ``schema_type``: the type, its origin."""
    if not work.value(f"{path}.name"):
        work.fill(f"{path}.name", name, origin="default")
    thinking = work.config.model.enable_thinking
    work.default(f"{path}.format.enable_thinking", thinking, origin="model.enable_thinking")
    work.default(f"{path}.schema_type", schema_type[0], origin=schema_type[1])
    work.default(f"{path}.data_selector.seed", work.config.seed, origin="seed")
