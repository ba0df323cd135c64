"""The built-in parts: names and references, by the same door as everybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trinity.extend import ComponentSpec, hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping

TRINITY_PLUGIN_API = 1


@hookimpl
def trinity_workflows() -> Mapping[str, str | ComponentSpec]:
    """Return workflows of one turn, and of agents of any kind."""
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
    """Return advantages of groups, and of token rewards."""
    functions = "trinity.algorithm.advantage_fn"
    fair = frozenset({"zero_for_equal_rewards"})
    compared = {
        "grpo": "grpo:GRPOAdvantageFn",
        "grpo_verl": "grpo:GRPOBatchAdvantageFn",
        "step_wise_grpo": "step_wise_grpo:StepWiseGRPOAdvantageFn",
    }
    return {
        **{name: ComponentSpec(f"{functions}.{t}", provides=fair) for name, t in compared.items()},
        "reinforce": f"{functions}.reinforce:ReinforceAdvantageFn",
        "ppo": ComponentSpec(
            f"{functions}.token_level:PPOAdvantageFn", needs=frozenset({"values"})
        ),
    }


@hookimpl
def trinity_policy_loss_fns() -> Mapping[str, str | ComponentSpec]:
    """Return the clipped policy gradient, the likelihood of rows, and preferences."""
    losses = "trinity.algorithm.policy_loss_fn"
    fair = frozenset({"zero_for_zero_advantages"})
    pairs = frozenset({"ref_logprob", "preference_pairs"})
    return {
        "ppo": ComponentSpec(f"{losses}.ppo:PPOPolicyLossFn", provides=fair),
        "sft": f"{losses}.sft:SFTPolicyLossFn",
        "dpo": ComponentSpec(f"{losses}.dpo:DPOPolicyLossFn", needs=pairs),
    }


@hookimpl
def trinity_kl_fns() -> Mapping[str, str | ComponentSpec]:
    """Return no divergence, and half of the squared difference."""
    needs = frozenset({"ref_logprob"})
    return {
        "none": "trinity.algorithm.kl_fn:NoKLFn",
        "k2": ComponentSpec("trinity.algorithm.kl_fn:K2KLFn", needs=needs),
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
    """Return strategies: what comes next, and nothing too old."""
    strategies = "trinity.algorithm.sample_strategy"
    return {
        "default": ComponentSpec(
            f"{strategies}.strategies:DefaultSampleStrategy",
            aliases=("warmup",),
            provides=frozenset({"in_order"}),
        ),
        "staleness_control": f"{strategies}.strategies:StalenessControlSampleStrategy",
    }


@hookimpl
def trinity_algorithm_types() -> Mapping[str, str | ComponentSpec]:
    """Return algorithms on what the policy sampled, and on rows to imitate."""
    algorithms = "trinity.algorithm.algorithms"
    return {
        "grpo": f"{algorithms}:GRPOAlgorithm",
        "grpo_verl": f"{algorithms}:GRPOVerlAlgorithm",
        "dapo": f"{algorithms}:DAPOAlgorithm",
        "ppo": f"{algorithms}:PPOAlgorithm",
        "multi_step_grpo": f"{algorithms}:MultiStepGRPOAlgorithm",
        "sft": f"{algorithms}:SFTAlgorithm",
        "cpt": f"{algorithms}:CPTAlgorithm",
        "dpo": f"{algorithms}:DPOAlgorithm",
        "raft": f"{algorithms}:RAFTAlgorithm",
    }


@hookimpl
def trinity_rollout_engines() -> Mapping[str, str | ComponentSpec]:
    """Return the engine that samples in this process."""
    target = "trinity.engines.transformers_engine:TransformersEngine"
    provides = {"logprobs", "seeded_by_key", "busy_s", "shares_module", "stop_strings", "structure"}
    provides |= {"weights:memory", "scores", "in_flight", "adapters", "penalties", "lockstep"}
    spec = ComponentSpec(target, provides=frozenset(provides), default_for="cpu")
    return {"transformers": spec}


@hookimpl
def trinity_reply_parsers() -> Mapping[str, str | ComponentSpec]:
    """Return parsers of tool calls, and of reasoning."""
    models = "trinity.common.models"
    return {
        "hermes": f"{models}.reply:HermesParser",
        "qwen3_coder": f"{models}.reply:QwenCoderParser",
        "glm45": f"{models}.reply:Glm45Parser",
        "llama3_json": f"{models}.reply:LlamaJsonParser",
        "mistral": f"{models}.reply:MistralParser",
        "pythonic": f"{models}.reply:PythonicParser",
        "deepseek_r1": f"{models}.reply:DeepseekR1Parser",
        "qwen3": f"{models}.reply:Qwen3Parser",
    }


@hookimpl
def trinity_trainers() -> Mapping[str, str | ComponentSpec]:
    """Return the torch trainer."""
    target = "trinity.trainer.torch_trainer:TorchTrainer"
    provides = frozenset(
        {"ref_logprob", "values", "entropys", "necs", "shares_module", "trained_batch", "ranks"}
    )
    return {"torch": ComponentSpec(target, provides=provides)}


@hookimpl
def trinity_sync_methods() -> Mapping[str, str | ComponentSpec]:
    """Return the handing over of weights in memory, process groups and shared memory."""
    group = "trinity.synchronizer.broadcast_sync"
    provides = frozenset({"sender"})
    return {
        "memory": "trinity.synchronizer.memory_sync:MemorySync",
        "gloo": ComponentSpec(f"{group}:GlooSync", provides=provides),
        "nccl": ComponentSpec(f"{group}:NcclSync", provides=provides),
        "ipc": ComponentSpec(
            "trinity.synchronizer.ipc_sync:IpcSync", provides=provides | {"one_machine"}
        ),
    }


@hookimpl
def trinity_storages() -> Mapping[str, str | ComponentSpec]:
    """Return the queue in memory and the jsonl file."""
    rows = {"preference_pairs", "plain_text_rows"}
    return {
        "queue": ComponentSpec(
            "trinity.buffer.queue:QueueStorage",
            provides=frozenset({"waiting", "put_back", "drop_older", "in_order"}),
        ),
        "file": ComponentSpec(
            "trinity.buffer.file:FileStorage",
            provides=frozenset({"state", "put_back", "length"} | rows),
        ),
    }


@hookimpl
def trinity_experience_operators() -> Mapping[str, str | ComponentSpec]:
    """Return filters of experiences, and what changes them."""
    return {
        "invalid_reward_filter": "trinity.buffer.operators:InvalidRewardFilter",
        "reward_filter": "trinity.buffer.operators:RewardFilter",
        "reward_std_filter": "trinity.buffer.operators:RewardStdFilter",
        "dapo_dynamic_sampling": "trinity.buffer.operators:DAPODynamicSampling",
        "mask_response_truncated": "trinity.buffer.operators:MaskResponseTruncated",
    }


@hookimpl
def trinity_task_selectors() -> Mapping[str, str | ComponentSpec]:
    """Return the order of the file, drawn orders, and an order by features."""
    return {
        "sequential": "trinity.buffer.selectors:SequentialSelector",
        "shuffle": "trinity.buffer.selectors:ShuffleSelector",
        "random": "trinity.buffer.selectors:RandomSelector",
        "offline_easy2hard": "trinity.buffer.selectors:EasyToHardSelector",
    }


@hookimpl
def trinity_monitors() -> Mapping[str, str | ComponentSpec]:
    """Return the jsonl file and TensorBoard."""
    return {
        "jsonl": "trinity.monitor.jsonl:JsonlMonitor",
        "tensorboard": ComponentSpec(
            "trinity.monitor.tensorboard:TensorboardMonitor",
            provides=frozenset({"flush", "samples"}),
        ),
    }
