"""The built-in parts: names and references, by the same door as everybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.extend import ComponentSpec, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> Mapping[str, str | ComponentSpec]:
    """Return workflows of one turn."""
    return {
        "simple_workflow": "trinity.common.workflows.simple:SimpleWorkflow",
        "async_simple_workflow": "trinity.common.workflows.simple:AsyncSimpleWorkflow",
        "math_workflow": "trinity.common.workflows.math:MathWorkflow",
        "async_math_workflow": "trinity.common.workflows.math:AsyncMathWorkflow",
    }


@hookimpl
def trinity_reward_fns() -> Mapping[str, str | ComponentSpec]:
    """Return rewards for answers that can be verified."""
    return {
        "math_reward": "trinity.common.rewards.math:MathRewardFn",
        "math_boxed_reward": "trinity.common.rewards.boxed:MathBoxedRewardFn",
        "format_reward": "trinity.common.rewards.format:FormatReward",
        "accuracy_reward": "trinity.common.rewards.accuracy:AccuracyReward",
        "countdown_reward": "trinity.common.rewards.countdown:CountDownRewardFn",
    }


@hookimpl
def trinity_advantage_fns() -> Mapping[str, str | ComponentSpec]:
    """Return the group-relative advantage."""
    return {"grpo": "trinity.algorithm.advantage_fn.grpo:GRPOAdvantageFn"}


@hookimpl
def trinity_policy_loss_fns() -> Mapping[str, str | ComponentSpec]:
    """Return the clipped surrogate and the plain likelihood."""
    return {
        "ppo": "trinity.algorithm.policy_loss_fn.ppo:PPOPolicyLossFn",
        "sft": "trinity.algorithm.policy_loss_fn.sft:SFTPolicyLossFn",
    }


@hookimpl
def trinity_kl_fns() -> Mapping[str, str | ComponentSpec]:
    """Return no divergence, and k2."""
    return {
        "none": "trinity.algorithm.kl_fn:NoKLFn",
        "k2": ComponentSpec("trinity.algorithm.kl_fn:K2KLFn", needs=frozenset({"ref_logprob"})),
    }


@hookimpl
def trinity_entropy_loss_fns() -> Mapping[str, str | ComponentSpec]:
    """Return no entropy loss, and the mean entropy."""
    return {
        "none": "trinity.algorithm.entropy_loss_fn:NoEntropyLossFn",
        "default": "trinity.algorithm.entropy_loss_fn:DefaultEntropyLossFn",
    }


@hookimpl
def trinity_sample_strategies() -> Mapping[str, str | ComponentSpec]:
    """Return the strategy that takes experiences as they come."""
    target = "trinity.algorithm.sample_strategy.default:DefaultSampleStrategy"
    return {"default": ComponentSpec(target, aliases=("warmup",))}


@hookimpl
def trinity_algorithm_types() -> Mapping[str, str | ComponentSpec]:
    """Return SFT and GRPO."""
    return {
        "sft": "trinity.algorithm.algorithms:SFTAlgorithm",
        "grpo": "trinity.algorithm.algorithms:GRPOAlgorithm",
    }


@hookimpl
def trinity_rollout_engines() -> Mapping[str, str | ComponentSpec]:
    """Return the engine that samples in this process."""
    target = "trinity.engines.transformers_engine:TransformersEngine"
    provides = frozenset({"logprobs"})
    return {"transformers": ComponentSpec(target, provides=provides, default_for="cpu")}


@hookimpl
def trinity_trainers() -> Mapping[str, str | ComponentSpec]:
    """Return the torch trainer."""
    target = "trinity.trainer.torch_trainer:TorchTrainer"
    return {"torch": ComponentSpec(target, provides=frozenset({"ref_logprob"}))}


@hookimpl
def trinity_sync_methods() -> Mapping[str, str | ComponentSpec]:
    """Return the handing over of weights in memory."""
    return {"memory": "trinity.synchronizer.memory:MemorySync"}


@hookimpl
def trinity_storages() -> Mapping[str, str | ComponentSpec]:
    """Return the queue in memory and the jsonl file."""
    return {
        "queue": "trinity.buffer.queue:QueueStorage",
        "file": "trinity.buffer.file:FileStorage",
    }


@hookimpl
def trinity_priority_fns() -> Mapping[str, str | ComponentSpec]:
    """Return the priority that falls with age."""
    return {"linear_decay": "trinity.buffer.priority:LinearDecay"}


@hookimpl
def trinity_experience_operators() -> Mapping[str, str | ComponentSpec]:
    """Return the filter of experiences without a finite reward."""
    return {"invalid_reward_filter": "trinity.buffer.operators:InvalidRewardFilter"}


@hookimpl
def trinity_task_selectors() -> Mapping[str, str | ComponentSpec]:
    """Return the order of the file, and a shuffled one."""
    return {
        "sequential": "trinity.buffer.selectors:SequentialSelector",
        "shuffle": "trinity.buffer.selectors:ShuffleSelector",
    }


@hookimpl
def trinity_monitors() -> Mapping[str, str | ComponentSpec]:
    """Return the jsonl file and TensorBoard."""
    return {
        "jsonl": "trinity.monitor.jsonl:JsonlMonitor",
        "tensorboard": "trinity.monitor.tensorboard:TensorboardMonitor",
    }
