"""Can several processes train what the run trains?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.common.config.check_names import problem_at
from trinity.errors import TrinityError
from trinity.extend import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem

_ULYSSES = "trainer.ulysses_sequence_parallel_size"
_OFFLOADS = ("param_offload", "optimizer_offload")


def rank_problems(config: Config, machine: Machine, parts: NamedParts) -> list[Problem]:
    """Return why the trainer cannot have the ranks that it is asked for, or would get."""
    asked = config.trainer.num_ranks
    if not config.has_trainer:
        return []
    problems = list(_of_sequences(config, machine, parts))
    if not (asked > 1 or (asked == 0 and machine.num_gpus > 1)):
        return problems
    problems += _of_offloads(config) if asked > 1 else []
    if config.trainer.trainer_strategy in {"fsdp", "fsdp2"}:
        problems += _of_sharding(config, parts)
    component = parts.find("trainer", config.trainer.trainer_type)
    try:
        can = component is None or KINDS["trainer"].can(component, "ranks")
    except TrinityError:  # it cannot be loaded: said elsewhere
        return problems
    if asked > 1 and not can:
        message = (
            f"is {asked}, but trainer {config.trainer.trainer_type} is one process (it does not "
            f"provide 'ranks'). Leave it out, or use trainer_type torch."
        )
        problems.append(problem_at(config, "trainer.num_ranks", message))
    return problems


def _of_sequences(config: Config, machine: Machine, parts: NamedParts) -> Iterator[Problem]:
    """Yield why ranks cannot share sequences as they are asked to."""
    size, ranks = config.trainer.ulysses_sequence_parallel_size, config.trainer.num_ranks
    if size == 1:
        return
    heads = machine.model_num_heads or 0
    divided = {f"trainer.num_ranks {ranks}": ranks, f"the model's {heads} attention heads": heads}
    for what in (words for words, number in divided.items() if number % size):
        message = f"is {size}, which does not divide {what}. Use one that does."
        yield problem_at(config, _ULYSSES, message)
    beside = trained_beside(config, parts)
    if beside:
        message = f"is {size}, but {' and '.join(beside)} cannot use sequence parallelism."
        yield problem_at(config, _ULYSSES, f"{message} Set it to 1.")


def _of_offloads(config: Config) -> Iterator[Problem]:
    """Yield what offloads in the way of the other strategy."""
    trainer, strategy = config.trainer, config.trainer.trainer_strategy
    if strategy in {"fsdp", "fsdp2"}:
        for name in (one for one in _OFFLOADS if getattr(trainer, one)):
            message = f"needs an unsharded model, but trainer_strategy is {strategy}"
            remedy = "Leave it out, and set trainer.offload_policy: true."
            yield problem_at(config, f"trainer.{name}", f"{message}. {remedy}")
    elif trainer.offload_policy:
        message = f"needs trainer_strategy fsdp2, but it is {strategy}"
        remedy = "Set trainer.trainer_strategy: fsdp2, or leave it out and set "
        remedy += "trainer.param_offload and trainer.optimizer_offload: true."
        yield problem_at(config, "trainer.offload_policy", f"{message}. {remedy}")


def _of_sharding(config: Config, parts: NamedParts) -> Iterator[Problem]:
    """Yield what is trained beside the model, and is not spread with it."""
    if "a critic" in trained_beside(config, parts):
        message = f"is {config.trainer.trainer_strategy}, which does not shard a critic. Use ddp."
        yield problem_at(config, "trainer.trainer_strategy", message)
    size, ranks = config.trainer.fsdp_size, config.trainer.num_ranks
    if size == 0 or (size > 0 and ranks % size):
        message = f"is {size}, which does not divide trainer.num_ranks {ranks}. Use one that does."
        yield problem_at(config, "trainer.fsdp_size", message)


def trained_beside(config: Config, parts: NamedParts) -> list[str]:
    """Return what is trained that is not the model itself."""
    algorithm: Any = parts.load("algorithm", config.algorithm.algorithm_type)
    has_critic = hasattr(algorithm, "setting") and bool(algorithm.setting("use_critic"))
    advantage_fn = parts.find("advantage_fn", config.algorithm.advantage_fn)
    has_critic |= advantage_fn is not None and "values" in advantage_fn.spec.needs
    beside = ["LoRA adapters"] if config.model.lora_configs else []
    return beside + (["a critic"] if has_critic else [])
