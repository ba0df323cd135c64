"""What of a resolved configuration is simulated: its workflow's calls, its GPUs, the times."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from trinity.common.config.resolve_gpus import (
    num_gpus,
    num_ranks,
    ranks_beside,
    shares_gpu,
    trainer_capacity,
    trainer_memory,
)
from trinity.errors import ConfigError

from trinity_debug.plan_time import work_of
from trinity_debug.recorded_times import recorded_times
from trinity_debug.simulate import Simulation, setup_of, simulation_lines, times_of
from trinity_debug.simulated_engines import Seconds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.config import Config, Machine
    from trinity.common.config.parts import NamedParts
    from trinity.common.config.problem import Problem

    from trinity_debug.simulated_run import Setup

__all__ = ["Asked", "simulated_stage"]

_OF_SCHEDULE = {  # keys that are simulated: a run with a wrong one may never end
    "algorithm.repeat_times",
    "buffer.batch_size",
    "buffer.train_batch_size",
    "explorer.max_inflight_batches",
    "explorer.rollout_model.engine_num",
    "explorer.rollout_model.tensor_parallel_size",
    "synchronizer.explorer_sync_interval",
    "synchronizer.sync_interval",
    "synchronizer.sync_offset",
    "synchronizer.sync_style",
    "synchronizer.trainer_sync_interval",
    "trainer.num_ranks",
}
_DRAWS = 10_000  # of rollouts, for the share of those that time out


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the command line says."""

    local: bool
    record: Path | None
    times: Sequence[str]
    train_gpus: int | None
    shared: float
    steps: int
    max_off_policy: int
    tflops: float | None
    tokens_per_s: float | None


def simulated_stage(
    config: Config,
    machine: Machine,
    parts: NamedParts,
    asked: Asked,
    *,
    problems: Sequence[Problem] = (),
) -> list[str]:
    """Return what comes of simulated runs of a stage.

    Args:
        config: a resolved stage.
        machine: with the GPUs of each host.
        parts: that it names.
        asked: what the command line says.
        problems: of the stage; with one of its schedule it is not simulated.

    Raises:
        ConfigError: a time is missing, or cannot be read.
    """
    if config.mode != "both":
        return [f"  not simulated: mode {config.mode} has not both rollouts and a trainer"]
    wrong = dict.fromkeys(one.path for one in problems if one.path in _OF_SCHEDULE)
    if wrong:
        return [f"  not simulated: first mend {', '.join(wrong)}"]
    requests, ranks = requests_of_group(config, parts), num_ranks(config, machine)
    simulation = Simulation(
        times=_times(config, machine, parts, asked, requests=requests),
        train_gpus=asked.train_gpus or ranks,
        shared=asked.shared,
        steps=asked.steps,
        max_off_policy=asked.max_off_policy,
    )
    plan = trainer_memory(config, machine, parts)

    def ranks_of(engines: int) -> int:
        number = ranks_beside(config, machine, engines=engines)
        if plan is None or machine.gpu_bytes is None:
            return number
        other = replace(plan, num_ranks=number)
        tokens = config.trainer.max_token_len_per_gpu or 0
        return number if other.peak(tokens) <= trainer_capacity(config, machine, other) else 0

    gpus = num_gpus(config, machine) if machine.num_gpus else 0
    setup = setup_of(config, simulation, requests=requests, ranks=ranks)
    setup = replace(setup, gpus=gpus, is_local=asked.local, in_turns=config.is_colocated)
    mean_s = setup.rollout.mean + setup.tool.mean
    if mean_s > setup.most_s:
        return [
            f"  not simulated: rollouts take {mean_s:,.4g} s on average, and explorer.max_timeout "
            f"ends them after {setup.most_s:,.4g} s. Set explorer.max_timeout to more"
        ]
    lines = [*_left_out(config), *_timed_out(setup)]
    if gpus and shares_gpu(config, machine) and not config.is_colocated and asked.shared == 1.0:
        lines.append(
            "  both sides use one GPU, and each is taken to be as fast as alone, which no GPU is: "
            "measure it, and give --shared"
        )
    return [*lines, *simulation_lines(setup, simulation, ranks_of=ranks_of)]


def _left_out(config: Config) -> list[str]:
    """Return a line where the run would not wait for slow groups, as the simulation does."""
    explorer = config.explorer
    asked = {
        "explorer.over_rollout": explorer.over_rollout.ratio > 0,
        "explorer.dynamic_timeout": explorer.dynamic_timeout.enable,
    }
    given = [path for path, is_asked in asked.items() if is_asked]
    if not given:
        return []
    return [f"  without {' and '.join(given)}: here each group is waited for"]


def _timed_out(setup: Setup) -> list[str]:
    """Return a line where rollouts of the tail would time out, which are cut in a simulation."""
    dice = random.Random(0)
    drawn = (setup.rollout.draw(dice) + setup.tool.draw(dice) for _ in range(_DRAWS))
    percent = 100.0 * sum(seconds > setup.most_s for seconds in drawn) / _DRAWS
    if percent < 0.5:
        return []
    return [
        f"  about {percent:.0f} % of the rollouts reach explorer.max_timeout ({setup.most_s:,.4g} "
        f"s): here they end then and are trained, in a run they fail"
    ]


def requests_of_group(config: Config, parts: NamedParts) -> int:
    """Return how many calls of its workflow make the rollouts of a group."""
    repeat = config.algorithm.repeat_times or 1
    given = config.buffer.explorer_input
    sets = [*given.tasksets, *filter(None, [given.taskset])]
    names = [one.default_workflow_type or given.default_workflow_type for one in sets]
    loaded = [parts.load("workflow", name) for name in names if name]
    if not any(getattr(one, "can_repeat", False) for one in loaded):
        return repeat
    size = min(repeat, config.explorer.max_repeat_times_per_runner or repeat)
    return -(-repeat // size)


def _times(
    config: Config, machine: Machine, parts: NamedParts, asked: Asked, *, requests: int
) -> dict[str, Seconds]:
    """Return the times that are computed, recorded or given, the last one first."""
    found: dict[str, Seconds] = {}
    plan = trainer_memory(config, machine, parts)
    if plan is not None and asked.tflops is not None and asked.tokens_per_s is not None:
        work, rollout = work_of(config, plan), config.explorer.rollout_model
        calls = config.buffer.batch_size * requests
        at_once = min(config.explorer.runner_per_model, -(-calls // rollout.engine_num))
        found = {
            "rollout": Seconds(mean=work.new_tokens / calls * at_once / asked.tokens_per_s),
            "train": Seconds(mean=work.train_flops / (plan.num_ranks * asked.tflops * 1e12)),
        }
    if asked.record is not None:
        if not asked.record.is_dir():
            raise ConfigError(
                f"--record {asked.record}: there is no such folder, seen from here. Name the run "
                "directory of a run of mode both."
            )
        stage = asked.record / config.name.rpartition("/")[2]  # of the run of this file
        folder = stage if (stage / "monitor").is_dir() else asked.record
        file = folder / "monitor" / "metrics.jsonl"
        calls = config.buffer.batch_size * requests
        read = recorded_times(file, requests=calls)
        found = {"rollout": read.rollout, "train": read.train}
        found |= {"sync": read.sync, "around": read.around}
    return found | times_of(asked.times)
