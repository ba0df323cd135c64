"""Does the model fit into the GPUs? Asked before anything starts, of its ``config.json`` alone."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from trinity.common.config.check_algorithm import has_reference
from trinity.common.config.memory import OFFLOADS, adapter_parameters, engine_bytes, usable
from trinity.common.config.resolve_gpus import (
    are_enough,
    left_of_gpu,
    longest_row,
    num_ranks,
    ranks_beside,
    shares_gpu,
    trainer_capacity,
    trainer_memory,
    with_all_gpus,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trinity.common.config.config import Config
    from trinity.common.config.machine import Machine
    from trinity.common.config.memory import TrainerMemory
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem

_SHOWN = 3
_RANK = 32  # of the adapters that are named as a way out
_WIDTHS = (2, 4, 8, 16, 32)  # GPUs of an engine or a row, which divide heads of most models
_FEWEST = 512  # tokens of a row that anybody would train on
_ULYSSES, _TOKENS = "trainer.ulysses_sequence_parallel_size", "trainer.max_token_len_per_gpu"
_ONE_ENGINE = "explorer.rollout_model.engine_num: 1"
_LORA = f"model.lora_configs: [{{lora_rank: {_RANK}}}]"
_STRATEGY = "trainer.trainer_strategy"
_CRITIC = "model.critic_model_path"
_GRPO = "algorithm.algorithm_type: grpo and algorithm.repeat_times: 2"


class _Way(NamedTuple):
    """A key, its cost, and the fields of the plan that it sets; ``rows``: ranks that share one."""

    key: str
    cost: str
    fields: Mapping[str, Any]  # Any: of all types


def memory_problems(config: Config, machine: Machine, parts: NamedParts) -> Iterator[Problem]:
    """Yield that an engine or the trainer does not fit, with what makes it fit."""
    yield from _of_engines(config, machine, parts)
    plan = trainer_memory(config, machine, parts)
    if plan is None or machine.gpu_bytes is None:
        return
    yield from _of_shared_gpu(config, machine, plan)
    room = trainer_capacity(config, machine, plan)
    tokens = config.trainer.max_token_len_per_gpu or 0
    peak = plan.peak(tokens)
    if peak <= room:
        return
    what = (
        f"has {plan.shape.parameters / 1e9:.1f} billion parameters: a train step needs "
        f"{peak / 1e9:.0f} GB on {'each of ' * (plan.num_ranks > 1)}{plan.num_ranks} "
        f"GPU{'s'[: plan.num_ranks > 1]} (computed), and "
        f"{room / 1e9:.0f} GB of {machine.gpu_bytes / 1e9:.0f} GB can be used."
    )
    ways = _ways(config, machine, plan, parts)
    fitting = list(islice(_fitting(config, machine, plan, ways), _SHOWN))
    fitting += islice(_fitting(config, machine, plan, _over_ray(config, machine)), 1)
    remedy = f"What makes it fit, the cheapest first: {'; '.join(fitting)}."
    if not fitting:
        ranks = [2**n for n in range(11) if 2**n > plan.num_ranks]
        more = [_Way(f"trainer.num_ranks: {n}", "more GPUs", {"num_ranks": n}) for n in ranks]
        row = plan.most_tokens(room) * config.trainer.ulysses_sequence_parallel_size
        shorter = [f"rows of at most {row:,} tokens"] if row >= _FEWEST else []
        larger = islice(_fitting(config, machine, plan, more + ways), 1)
        beyond = [*larger, *shorter, "a smaller model"]
        remedy = f"No key makes it fit these GPUs. Use {', or '.join(beyond)}."
    if plan.critic:
        what += " Each rank holds all of policy and critic, so more GPUs alone do not help."
    yield config.source.problem("model.model_path", what, remedy)


def _of_engines(config: Config, machine: Machine, parts: NamedParts) -> Iterator[Problem]:
    rollout = config.explorer.rollout_model
    if machine.model is None or machine.gpu_bytes is None or config.mode == "train":
        return
    width, share = rollout.tensor_parallel_size, rollout.gpu_memory_utilization
    dtype = rollout.dtype or config.trainer.precision
    weights = engine_bytes(machine.model, dtype=dtype, width=width)
    if weights >= share * machine.gpu_bytes:
        what = (
            f"is {width}: an engine holds {weights / 1e9:.0f} GB of weights on each of its GPUs "
            f"(computed), and may use {share:g} of {machine.gpu_bytes / 1e9:.0f} GB."
        )
        enough = math.ceil(weights * width / (0.8 * share * machine.gpu_bytes))
        heads = machine.model_num_heads or 0
        widths = [n for n in _WIDTHS if n >= enough and heads % n == 0 and not config.is_colocated]
        copies = {n: with_all_gpus(config, machine, width=n) for n in widths}
        ways = [str(n) for n, both in copies.items() if are_enough(*both, parts)][:1]
        if not parts.spreads(rollout.engine_type):
            ways = [f"{n} and {_that_spreads(parts)}" for n in ways]
        if machine.is_one_process and config.has_trainer:  # no GPU is left beside a wide engine
            ways = [f"{way} over Ray (without --local)" for way in ways]
        ways += ["dtype bfloat16"] if dtype == "float32" else []
        remedy = f"Use {' or '.join(ways)}." if ways else "Use larger GPUs, or a smaller model."
        yield config.source.problem("explorer.rollout_model.tensor_parallel_size", what, remedy)


def _that_spreads(parts: NamedParts) -> str:
    names = [one.name for one in parts.manager.components("rollout_engine")]
    found = [f"engine_type: {name}" for name in names if parts.spreads(name)]
    return found[0] if found else "an engine_type that provides 'tensor_parallel'"


def _over_ray(config: Config, machine: Machine) -> list[_Way]:
    """Return what ``--local`` is in the way of: the defaults over Ray, or one engine there."""
    if sum(machine.gpus_over_ray) < 2:
        return []
    config, machine = with_all_gpus(config, machine)
    engine, ways = config.explorer.rollout_model, []
    for num, more in ((engine.engine_num, ""), (1, f" and {_ONE_ENGINE}")):
        engine.engine_num = num
        ranks = {"num_ranks": num_ranks(config, machine)}
        ways.append(_Way(f"run over Ray, without --local{more}", "", ranks))
    return ways


def _of_shared_gpu(config: Config, machine: Machine, plan: TrainerMemory) -> Iterator[Problem]:
    share = config.explorer.rollout_model.gpu_memory_utilization
    left = left_of_gpu(config, machine, plan)
    path = "explorer.rollout_model.gpu_memory_utilization"
    is_asked, is_more = bool(config.source.where(path)), share > left + 0.005 and left > 0
    if shares_gpu(config, machine) and is_more and (is_asked or config.is_colocated):
        what = f"is {share:g}, but the trainer uses the same GPU and leaves {left:.2f} of it."
        remedy = "Leave it out: the part is then computed." if is_asked else "Use mode: both."
        yield config.source.problem(path, what, remedy)


def _ways(config: Config, machine: Machine, plan: TrainerMemory, parts: NamedParts) -> list[_Way]:
    """Return the keys that change the plan, the cheapest first."""
    trainer, critic, heads = config.trainer, plan.critic, machine.model_num_heads or 0
    sizes = [n for n in _WIDTHS if trainer.ulysses_sequence_parallel_size == 1 and heads % n == 0]
    without = config.algorithm.model_copy(update={"kl_loss_fn": "none"})
    is_read = has_reference(config.model_copy(update={"algorithm": without}), parts)
    lora = plan.adapters or adapter_parameters(plan.shape, _RANK)
    ranks = max(plan.num_ranks, ranks_beside(config, machine, engines=1))
    ranks = plan.num_ranks if config.mode == "train" or trainer.num_ranks else ranks
    half = "bfloat16" if machine.has_bf16 else plan.precision
    ways = [
        _Way("trainer.precision: bfloat16", "rounded products", {"precision": half}),
        _Way("trainer.gradient_checkpointing: true", "a third more time", {"recomputes": True}),
        _Way(f"{_STRATEGY}: fsdp2", "weights are gathered", {"strategy": "fsdp2"}),
        *(_Way(f"{_ULYSSES}: {n}", "rows are shared", {"rows": n}) for n in sizes),
        _Way("trainer.offload_policy: true", "weights in CPU memory", {"offload_policy": True}),
        _Way("trainer.optimizer_offload: true", "slower updates", {"optimizer_offload": True}),
        _Way(_ONE_ENGINE, "slower rollouts", {"num_ranks": ranks}),
        _Way("algorithm.kl_loss_fn: none", "no KL term", {"has_reference": is_read}),
        _Way(_LORA, "adapters alone are trained", {"adapters": lora}),
    ]
    if critic:
        for layers in (critic.num_layers // part for part in (2, 4, 8)):
            size = critic.root + (critic.parameters - critic.root) * layers // critic.num_layers
            smaller = replace(critic, num_layers=layers, parameters=size)
            key = f"{_CRITIC}: at most {size // 10**8 / 10} billion parameters"
            ways.append(_Way(key, "a smaller critic", {"critic": smaller}))
        if not config.source.where("algorithm.advantage_fn"):
            ways.append(_Way(_GRPO, "no critic", {"critic": None, "has_reference": True}))
    return [one for one in ways if any(getattr(plan, n, 1) != v for n, v in one.fields.items())]


def _fitting(
    config: Config, machine: Machine, plan: TrainerMemory, ways: list[_Way]
) -> Iterator[str]:
    """Yield keys that make it fit, with what they cost; none beside those that are enough."""
    assert machine.gpu_bytes is not None
    here, there = trainer_capacity(config, machine, plan), usable(machine.gpu_bytes)
    tokens, is_cut = config.trainer.max_token_len_per_gpu or 0, config.source.where(_TOKENS)
    is_asked, asked = config.source.where(_STRATEGY), config.trainer.ulysses_sequence_parallel_size
    found: list[set[str]] = []
    sets = [one for num in range(4) for one in combinations(ways, num)]
    for chosen in sorted(sets, key=lambda one: [ways.index(way) for way in reversed(one)]):
        fields = {name: value for way in chosen for name, value in way.fields.items()}
        rows, kept = fields.pop("rows", asked), plan.offloads | fields.keys() & set(OFFLOADS)
        other, room = replace(plan, **fields), there if "num_ranks" in fields else here
        if "strategy" not in fields and not is_asked:
            other = replace(other, strategy=other.default_strategy(machine.gpu_bytes))
        row = math.ceil(longest_row(config) * asked / rows)
        is_whole = rows > 1 and (other.adapters or other.critic or other.num_ranks % rows)
        if is_whole or not kept <= other.offloads or (other.critic and other.is_sharded):
            continue  # no ranks can be such
        if other.peak(min(row, tokens) if is_cut else row) > room:
            continue
        keys, costs = [way.key for way in chosen], [way.cost for way in chosen]
        if is_cut and other.peak(tokens) > room:
            keys.append(f"{_TOKENS}: {other.most_tokens(room)}")
            costs.append("more micro-batches")
        if keys and not any(one <= set(costs) for one in found):
            found.append(set(costs))
            cost = f" ({', '.join(costs)})" if costs[0] else ""
            yield f"{' and '.join(keys)}{cost}"
