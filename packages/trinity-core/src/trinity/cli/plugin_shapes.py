"""What ``trinity plugins new`` can write: per kind, its names and its place in ``run.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How a plugin of one kind is laid out."""

    module: str
    suffix: str  # of the class
    run: Mapping[str, str]  # what of RUN the part takes the place of; {name} is its own


#: what run.yaml holds where the part of a plugin takes no place
RUN = {
    "workflow_type": "simple_workflow",
    "reward_fn_type": "math_reward",
    "algorithm_type": "grpo",
    "sync_method": "memory",
    "algorithm_key": "",
    "buffer_key": "",
    "taskset_key": "",
    "sections": "",
}
_REPLAY = """\
  trainer_input:
    experience_buffer:
      name: replay
      storage_type: queue
      replay_buffer:
        enable: true
        priority_fn: {name}
"""
_OPERATOR = """\
data_processor:
  experience_pipeline:
    operators:
      - name: {name}
"""


_STORAGE = """\
  trainer_input:
    experience_buffer:
      name: own
      storage_type: {name}
"""
_SELECTOR = """\
      data_selector:
        selector_type: {name}
"""
_ENGINE = """\
explorer:
  rollout_model:
    engine_type: {name}
"""
_PARSER = """\
explorer:
  rollout_model:
    tool_call_parser: {name}
"""
_TRAINER = {
    "algorithm_key": "  kl_loss_fn: none  # the trainer has no reference model\n",
    "sections": "trainer:\n  trainer_type: {name}\n",
}


def _shape(module: str, suffix: str, **run: str) -> Shape:
    return Shape(module=module, suffix=suffix, run=run)


def _of_algorithm(key: str, *, module: str, suffix: str) -> Shape:
    return _shape(module, suffix, algorithm_key=f"  {key}: {{name}}\n")


SHAPES = {
    "workflow": _shape("workflow", "Workflow", workflow_type="{name}"),
    "reward_fn": _shape("reward", "Reward", reward_fn_type="{name}"),
    "advantage_fn": _of_algorithm("advantage_fn", module="advantage", suffix="AdvantageFn"),
    "policy_loss_fn": _of_algorithm("policy_loss_fn", module="loss", suffix="PolicyLossFn"),
    "kl_fn": _of_algorithm("kl_loss_fn", module="kl", suffix="KLFn"),
    "entropy_loss_fn": _of_algorithm("entropy_loss_fn", module="entropy", suffix="EntropyLossFn"),
    "sample_strategy": _of_algorithm("sample_strategy", module="strategy", suffix="SampleStrategy"),
    "algorithm": _shape("algorithm", "Algorithm", algorithm_type="{name}"),
    "rollout_engine": _shape("engine", "Engine", sections=_ENGINE),
    "reply_parser": _shape("parser", "Parser", sections=_PARSER),
    "trainer": _shape("trainer", "Trainer", **_TRAINER),
    "sync_method": _shape("sync", "Sync", sync_method="{name}"),
    "storage": _shape("storage", "Storage", buffer_key=_STORAGE),
    "priority_fn": _shape("priority", "Priority", buffer_key=_REPLAY),
    "experience_operator": _shape("operator", "Operator", sections=_OPERATOR),
    "task_selector": _shape("selector", "Selector", taskset_key=_SELECTOR),
    "monitor": _shape("monitor", "Monitor", sections="monitor:\n  monitor_type: {name}\n"),
}
