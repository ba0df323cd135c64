"""What a run promises of its numbers and its order, whatever is fast, slow or killed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from trinity.explorer.flight import FlightPlan
from trinity.extend.kinds import KINDS
from trinity.runtime.pace import is_in_flight
from trinity.runtime.sides import IN_ORDER, is_in_order

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.extend import PluginManager

__all__ = ["Guarantee", "guarantee_of"]

Guarantee = Literal["same numbers", "same order", "same ledger"]


def guarantee_of(config: Config, manager: PluginManager) -> Guarantee:
    """Return the level that the style, the strategy and the storage of a run allow.

    ``same numbers``: every metric but times is a function of the seed, for runs of one turn or in
    lockstep. ``same order``: batch k holds the same tasks under the same ids,
    as long as no group is dropped. ``same ledger``: each experience is trained once, or counted as
    dropped.
    """
    if not (config.has_trainer and config.mode == "both"):
        return "same ledger"
    strategy = manager.find("sample_strategy", config.algorithm.sample_strategy)
    reads_in_order = IN_ORDER in KINDS["sample_strategy"].declared_by(strategy)
    if not (reads_in_order and is_in_order(config, manager)):
        return "same ledger"
    if config.synchronizer.sync_style != "fixed" and _tasks_follow_rewards(config, manager):
        return "same ledger"
    if is_in_flight(config):
        return "same ledger" if FlightPlan.of(config).window > 1 else "same order"
    return "same numbers" if config.synchronizer.sync_style == "fixed" else "same order"


def _tasks_follow_rewards(config: Config, manager: PluginManager) -> bool:
    """Return whether a selector orders tasks by how others went, so by the weights they had."""
    given = config.buffer.explorer_input
    tasksets = [*given.tasksets, *([given.taskset] if given.taskset is not None else [])]
    names = {taskset.data_selector.selector_type or "sequential" for taskset in tasksets}
    found = [manager.find("task_selector", name) for name in names]
    return any("feedback" in KINDS["task_selector"].declared_by(one) for one in found)
