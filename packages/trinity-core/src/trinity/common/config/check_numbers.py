"""Do the lengths, the batches and the GPUs work out?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.common.config.check_memory import memory_problems
from trinity.common.config.resolve_gpus import (
    are_enough,
    longest_row,
    num_gpus,
    wanted_gpus,
    with_all_gpus,
)
from trinity.common.sync_policy import policy_of

if TYPE_CHECKING:
    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem


def number_problems(config: Config, machine: Machine, parts: NamedParts) -> list[Problem]:
    """Return what does not add up."""
    problems = _length_problems(config, machine)
    if config.has_trainer:
        problems += _cut_problems(config)
    is_unset = "train_batch_size" not in config.buffer.model_fields_set
    if config.mode == "train" and config.buffer.train_batch_size < 2 and is_unset:
        path = "buffer.train_batch_size"
        what = "is missing: in mode train there is no explore step that it could follow."
        problems.append(config.source.problem(path, what, "Set it, to 64 for instance."))
    if machine.num_gpus > 0:
        problems += _gpu_problems(config, machine, parts)
    problems += _interval_problems(config)
    if config.mode == "both":
        problems += _capacity_problems(config)
    if config.is_colocated:
        problems += _colocation_problems(config)
    return problems


def _length_problems(config: Config, machine: Machine) -> list[Problem]:
    model = config.model
    length, prompt = model.max_model_len or 0, model.max_prompt_tokens or 0
    response = model.max_response_tokens or 0
    problems = []
    if prompt + response > length:
        message = f"is {length}, but prompt ({prompt}) and response ({response}) need more tokens."
        remedy = f"Use {prompt + response}, or lower max_prompt_tokens or max_response_tokens."
        problems.append(config.source.problem("model.max_model_len", message, remedy))
    if machine.model_max_len and length > machine.model_max_len:
        message = f"is {length}, but the model supports {machine.model_max_len} tokens."
        problems.append(config.source.problem("model.max_model_len", message, severity="notice"))
    for index, taskset in enumerate(config.buffer.explorer_input.tasksets):
        most = taskset.rollout_args.max_tokens or 0
        if most > response:
            path = f"buffer.explorer_input.tasksets.{index}.rollout_args.max_tokens"
            message = f"is {most}, but model.max_response_tokens is {response}."
            remedy = f"Use {response} or less, or increase model.max_response_tokens."
            problems.append(config.source.problem(path, message, remedy))
    return problems


def _cut_problems(config: Config) -> list[Problem]:
    path = "trainer.max_token_len_per_gpu"
    per_rank = config.trainer.max_token_len_per_gpu or 0
    budget = per_rank * config.trainer.ulysses_sequence_parallel_size  # of ranks that share a row
    response = config.model.max_response_tokens or 0
    longest = response + (config.model.max_prompt_tokens or 0)
    if budget >= longest:
        return []
    if budget < response:
        message = (
            f"is {per_rank}, but one row may have {longest} tokens "
            "(max_prompt_tokens + max_response_tokens), and a row cannot be split."
        )
        remedy = f"Use {longest_row(config)} or more, or shorter responses."
        return [config.source.problem(path, message, remedy)]
    message = f"is {per_rank}, but a row of prompt and response may have {longest} tokens."
    return [config.source.problem(path, message, severity="notice")]


def _gpu_problems(config: Config, machine: Machine, parts: NamedParts) -> list[Problem]:
    asked = config.cluster.gpu_per_node
    problems = []
    if asked > machine.num_gpus:
        message = f"is {asked}, but this machine has {machine.num_gpus} GPUs."
        remedy = f"Use {machine.num_gpus} or less."
        problems.append(config.source.problem("cluster.gpu_per_node", message, remedy))
    problems += _allocation_problems(config, machine, parts)
    return problems or list(memory_problems(config, machine, parts))


def _allocation_problems(config: Config, machine: Machine, parts: NamedParts) -> list[Problem]:
    """Return that engines and trainer need more GPUs than there are; some share them."""
    num_engines, size, ranks = wanted_gpus(config, machine, parts)
    have = num_gpus(config, machine)
    wanted, left = num_engines * size + ranks, have - num_engines * size
    if wanted <= have:
        return []
    terms = [f"{num_engines} engines x {size} GPUs"] if num_engines else []
    terms += [f"{ranks} trainer ranks" if ranks > 1 else "a trainer"] if ranks else []
    message = f"{' and '.join(terms)} need {wanted} GPUs; "
    message += f"--local uses {have}." if machine.is_one_process else f"there are {have}."
    path, remedy = "explorer.rollout_model.engine_num", "Decrease it, or tensor_parallel_size"
    if ranks > 1 and (left > 0 or machine.is_one_process):
        path, remedy = "trainer.num_ranks", f"Use {max(1, left)} or fewer"
    if machine.is_one_process and are_enough(*with_all_gpus(config, machine), parts):
        remedy += ", or run over Ray, without --local"
    return [config.source.problem(path, message, f"{remedy}.")]


def _colocation_problems(config: Config) -> list[Problem]:
    """Return a problem for each key by which a GPU would be used out of turn."""
    policy, models = policy_of(config), config.explorer.auxiliary_models
    width = config.explorer.rollout_model.tensor_parallel_size
    found = {
        "synchronizer.sync_style": policy.in_groups,
        "synchronizer.sync_offset": policy.offset > 0,
        "synchronizer.sync_method": config.synchronizer.sync_method == "nccl",
        "explorer.auxiliary_models": any(not one.external_model_config.enable for one in models),
        "explorer.rollout_model.tensor_parallel_size": width > 1,  # of a rank's GPU each has half
    }
    what = "does not work where engines and trainer use the same GPUs in turns (mode colocate)."
    remedy = "Leave it out, or use mode both without enable_sleep_mode."
    return [config.source.problem(path, what, remedy) for path, given in found.items() if given]


def _interval_problems(config: Config) -> list[Problem]:
    sync, policy = config.synchronizer, policy_of(config)
    problems = []
    if not (policy.in_rounds or policy.in_groups) and sync.sync_offset:  # groups: a problem
        where = "by standalone runs" if config.is_standalone else f"with sync_style {policy.style}"
        message = f"is ignored {where}; only sync_style fixed reads it."
        where = "synchronizer.sync_offset"
        problems.append(config.source.problem(where, message, severity="notice"))
    for side in ("explorer_sync_interval", "trainer_sync_interval"):
        value = getattr(sync, side)
        if policy.in_rounds and value not in {None, sync.sync_interval}:
            message = f"is {value}, but with sync_style fixed both sides sync every "
            message += f"{sync.sync_interval} steps (sync_interval)."
            problems.append(config.source.problem(f"synchronizer.{side}", message, "Leave it out."))
    return problems


def _capacity_problems(config: Config) -> list[Problem]:
    buffer, policy = config.buffer.trainer_input.experience_buffer, policy_of(config)
    if buffer is None or buffer.storage_type != "queue":
        return []
    ahead = policy.most_steps_waiting(
        rows=config.buffer.batch_size * (config.algorithm.repeat_times or 1),
        batch=config.buffer.train_batch_size,
    )
    if buffer.capacity >= ahead:
        return []
    because = "train_batch_size, and the sync interval"
    because = "sync_interval + sync_offset" if policy.in_rounds else because
    path = "buffer.trainer_input.experience_buffer.capacity"
    end = "the queue would block for ever."
    if buffer.replay_buffer.enable:
        end = "experiences would be evicted before they are trained."
    message = (
        f"is {buffer.capacity} batches, but the explorer runs {ahead} steps before the trainer "
        f"reads ({because}): {end}"
    )
    return [config.source.problem(path, message, f"Use {ahead} or more.")]
