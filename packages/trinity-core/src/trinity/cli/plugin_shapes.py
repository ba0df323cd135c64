"""What ``trinity plugins new`` can write: per kind, its names and its place in ``run.yaml``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SHAPES", "Shape"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How a plugin of one kind is laid out."""

    module: str
    suffix: str  # of the class
    run_key: str  # what of the run.yaml template the part takes the place of
    run_value: str = "{name}"


SHAPES = {
    "workflow": Shape(module="workflow", suffix="Workflow", run_key="workflow_type"),
    "reward_fn": Shape(module="reward", suffix="Reward", run_key="reward_fn_type"),
    "advantage_fn": Shape(
        module="advantage",
        suffix="AdvantageFn",
        run_key="algorithm_key",
        run_value="  advantage_fn: {name}\n",
    ),
    "policy_loss_fn": Shape(
        module="loss",
        suffix="PolicyLossFn",
        run_key="algorithm_key",
        run_value="  policy_loss_fn: {name}\n",
    ),
    "sample_strategy": Shape(
        module="strategy",
        suffix="SampleStrategy",
        run_key="algorithm_key",
        run_value="  sample_strategy: {name}\n",
    ),
    "algorithm": Shape(module="algorithm", suffix="Algorithm", run_key="algorithm_type"),
}
