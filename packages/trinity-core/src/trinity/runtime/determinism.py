"""What a run promises of its numbers, and whether its trainer may work beside the rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trinity.common.sync_policy import policy_of
from trinity.extend.kinds import KINDS

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.extend import PluginManager

Determinism = Literal["same numbers", "same order", "same ledger"]
LEAST: Determinism = "same ledger"


def determinism_of(config: Config, manager: PluginManager) -> Determinism:
    """Return the level that the policy, the engine, the strategy and the storage of a run allow.

    ``same numbers``: every metric but times is a function of the seed, if each rollout asks the
    model once. ``same order``: batch k holds the same tasks under the same ids, as long as no group
    is dropped. ``same ledger``: each experience is trained once, or counted as dropped.
    """
    policy = policy_of(config)
    if not (config.mode == "both" and reads_in_order(config, manager) and policy.in_order):
        return "same ledger"
    engine = manager.find("rollout_engine", config.explorer.rollout_model.engine_type)
    if policy.is_bitwise and KINDS["rollout_engine"].can(engine, "lockstep"):
        return "same numbers"
    return "same ledger" if _tasks_follow_rewards(config, manager) else "same order"


def may_overlap(config: Config, manager: PluginManager) -> bool:
    """Return whether rollouts may begin beside train steps.

    The policy must let them run ahead, and what is read must not depend on what is written
    meanwhile.
    """
    may_run_ahead = config.mode == "both" and not config.is_colocated
    return may_run_ahead and policy_of(config).can_overlap and reads_in_order(config, manager)


def reads_in_order(config: Config, manager: PluginManager) -> bool:
    """Return whether the strategy reads, and the buffer gives, rows as they were written."""
    strategy = manager.find("sample_strategy", config.algorithm.sample_strategy)
    return KINDS["sample_strategy"].can(strategy, "in_order") and is_in_order(config, manager)


def is_in_order(config: Config, manager: PluginManager) -> bool:
    """Return whether the buffer gives out, and shows, what it holds as it was written."""
    buffer = config.buffer.trainer_input.experience_buffer
    storage = manager.find("storage", buffer.storage_type)
    return not buffer.replay_buffer.enable and KINDS["storage"].can(storage, "in_order")


def _tasks_follow_rewards(config: Config, manager: PluginManager) -> bool:
    """Return whether a selector orders tasks by how others went, so by the weights they had."""
    given = config.buffer.explorer_input
    tasksets = [*given.tasksets, *([given.taskset] if given.taskset is not None else [])]
    names = {taskset.data_selector.selector_type or "sequential" for taskset in tasksets}
    found = [manager.find("task_selector", name) for name in names]
    return any("feedback" in KINDS["task_selector"].declared_by(one) for one in found)
