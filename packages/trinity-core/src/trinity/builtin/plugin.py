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
        "agent_workflow": "trinity.common.workflows.agent:AgentWorkflow",
        "code_workflow": "trinity.common.workflows.code:CodeWorkflow",
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
    """Return advantages of groups, of token rewards, and from a teacher."""
    functions = "trinity.algorithm.advantage_fn"
    fair = frozenset({"zero_for_equal_rewards"})
    teacher = frozenset({"logprobs", "teacher_logprobs"})
    entropy = frozenset({"logprobs", "entropys"})
    compared = {
        "grpo": "grpo:GRPOAdvantageFn",
        "grpo_verl": "grpo:GRPOBatchAdvantageFn",
        "step_wise_grpo": "step_wise_grpo:StepWiseGRPOAdvantageFn",
        "gigpo": "gigpo:GiGPOAdvantageFn",
        "rloo": "rloo:RLOOAdvantageFn",
        "rec": "rec:RECAdvantageFn",
    }
    needing = {
        "ppo": ("token_level:PPOAdvantageFn", frozenset({"values"})),
        "remax": ("token_level:REMAXAdvantageFn", frozenset({"reward_baselines"})),
        "on_policy_distill": ("distillation:OnPolicyDistillAdvantageFn", teacher),
        "jsd": ("distillation:JSDAdvantageFn", teacher),
        "clipb": ("entropy_clip:CLIPBAdvantageFn", entropy),
        "clipv": ("entropy_clip:CLIPVAdvantageFn", entropy | {"necs"}),
    }
    return {
        **{name: ComponentSpec(f"{functions}.{t}", provides=fair) for name, t in compared.items()},
        "reinforce": f"{functions}.reinforce:ReinforceAdvantageFn",
        "reinforceplusplus": f"{functions}.token_level:REINFORCEPLUSPLUSAdvantageFn",
        **{name: ComponentSpec(f"{functions}.{t}", needs=n) for name, (t, n) in needing.items()},
    }


@hookimpl
def trinity_policy_loss_fns() -> Mapping[str, str | ComponentSpec]:
    """Return clipped and weighted policy gradients, likelihoods, and their mixtures."""
    losses = "trinity.algorithm.policy_loss_fn"
    gradients = {
        "ppo": "ppo:PPOPolicyLossFn",
        "gspo": "gspo:GSPOPolicyLossFn",
        "cispo": "cispo:CISPOPolicyLossFn",
        "sapo": "sapo:SAPOPolicyLossFn",
        "topr": "topr:TOPRPolicyLossFn",
        "rec": "rec:RECPolicyLossFn",
        "importance_sampling": "importance_sampling:ImportanceSamplingPolicyLossFn",
    }
    fair, mixed = frozenset({"zero_for_zero_advantages"}), frozenset({"expert_mask"})
    pairs = frozenset({"ref_logprob", "preference_pairs"})
    return {
        **{name: ComponentSpec(f"{losses}.{t}", provides=fair) for name, t in gradients.items()},
        "sft": f"{losses}.sft:SFTPolicyLossFn",
        "sft_is": f"{losses}.sft_weighted:SFTISPolicyLossFn",
        "sft_phi": f"{losses}.sft_weighted:SFTPhiPolicyLossFn",
        "dpo": ComponentSpec(f"{losses}.dpo:DPOPolicyLossFn", needs=pairs),
        "mix": ComponentSpec(f"{losses}.mix:MIXPolicyLossFn", needs=mixed),
        "mix_chord": ComponentSpec(f"{losses}.mix_chord:MIXCHORDPolicyLossFn", needs=mixed),
    }


@hookimpl
def trinity_kl_fns() -> Mapping[str, str | ComponentSpec]:
    """Return no divergence, and estimates from the log-probabilities of sampled tokens."""
    needs = frozenset({"ref_logprob"})
    estimates = {
        "k1": "trinity.algorithm.kl_estimators:K1KLFn",
        "k2": "trinity.algorithm.kl_fn:K2KLFn",
        "k3": "trinity.algorithm.kl_estimators:K3KLFn",
        "low_var_kl": "trinity.algorithm.kl_estimators:LowVarKLFn",
        "abs": "trinity.algorithm.kl_estimators:AbsKLFn",
        "corrected_k3": "trinity.algorithm.kl_estimators:CorrectedK3KLFn",
    }
    specs = {name: ComponentSpec(target, needs=needs) for name, target in estimates.items()}
    return {"none": "trinity.algorithm.kl_fn:NoKLFn"} | specs


@hookimpl
def trinity_entropy_loss_fns() -> Mapping[str, str | ComponentSpec]:
    """Return no entropy loss, the mean entropy, and that of the policy's own rows."""
    return {
        "none": "trinity.algorithm.entropy_loss_fn:NoEntropyLossFn",
        "default": "trinity.algorithm.entropy_loss_fn:DefaultEntropyLossFn",
        "mix": ComponentSpec(
            "trinity.algorithm.entropy_loss_fn:MixEntropyLossFn", needs=frozenset({"expert_mask"})
        ),
    }


@hookimpl
def trinity_sample_strategies() -> Mapping[str, str | ComponentSpec]:
    """Return strategies: what comes next, nothing too old, an expert's rows too."""
    strategies = "trinity.algorithm.sample_strategy"
    return {
        "default": ComponentSpec(
            f"{strategies}.default:DefaultSampleStrategy",
            aliases=("warmup",),
            provides=frozenset({"in_order"}),
        ),
        "staleness_control": f"{strategies}.staleness_control:StalenessControlSampleStrategy",
        "mix": ComponentSpec(
            f"{strategies}.mix:MixSampleStrategy",
            needs=frozenset({"auxiliary_buffer"}),
            provides=frozenset({"expert_mask"}),
        ),
    }


@hookimpl
def trinity_algorithm_types() -> Mapping[str, str | ComponentSpec]:
    """Return algorithms on what the policy sampled, and on rows to imitate."""
    sampled, imitated = "trinity.algorithm.algorithms", "trinity.algorithm.supervised_algorithms"
    targets = {
        "grpo": f"{sampled}:GRPOAlgorithm",
        "grpo_verl": f"{sampled}:GRPOVerlAlgorithm",
        "dapo": f"{sampled}:DAPOAlgorithm",
        "cispo": f"{sampled}:CISPOAlgorithm",
        "gspo": f"{sampled}:GSPOAlgorithm",
        "sapo": f"{sampled}:SAPOAlgorithm",
        "topr": f"{sampled}:TOPRAlgorithm",
        "rec": f"{sampled}:RECAlgorithm",
        "rloo": f"{sampled}:RLOOAlgorithm",
        "reinforceplusplus": f"{sampled}:REINFORCEPlusPlusAlgorithm",
        "ppo": f"{sampled}:PPOAlgorithm",
        "multi_step_grpo": f"{sampled}:MultiStepGRPOAlgorithm",
        "gigpo": f"{sampled}:GiGPOAlgorithm",
        "on_policy_distill": f"{sampled}:OnPolicyDistillAlgorithm",
        "jsd": f"{sampled}:JSDAlgorithm",
        "sft": f"{imitated}:SFTAlgorithm",
        "cpt": f"{imitated}:CPTAlgorithm",
        "dpo": f"{imitated}:DPOAlgorithm",
        "raft": f"{imitated}:RAFTAlgorithm",
        "mix": f"{imitated}:MIXAlgorithm",
        "mix_chord": f"{imitated}:MIXCHORDAlgorithm",
    }
    needs = {  # a run without these is refused before it starts
        "on_policy_distill": "teacher_logprobs",
        "jsd": "teacher_logprobs",
        "mix": "auxiliary_buffer",
        "mix_chord": "auxiliary_buffer",
    }
    return {
        name: ComponentSpec(target, needs=frozenset({needs[name]} if name in needs else ()))
        for name, target in targets.items()
    }


@hookimpl
def trinity_rollout_engines() -> Mapping[str, str | ComponentSpec]:
    """Return the engine that samples in this process."""
    target = "trinity.engines.transformers_engine:TransformersEngine"
    provides = {"logprobs", "seeded_by_key", "busy_s", "shares_module", "stop_strings", "structure"}
    provides |= {"weights:memory", "scores", "in_flight"}
    spec = ComponentSpec(target, provides=frozenset(provides), default_for="cpu")
    return {"transformers": spec}


@hookimpl
def trinity_reply_parsers() -> Mapping[str, str | ComponentSpec]:
    """Return parsers of tool calls, and of reasoning."""
    models = "trinity.common.models"
    return {
        "hermes": f"{models}.reply:HermesParser",
        "qwen3_coder": f"{models}.reply:QwenCoderParser",
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
def trinity_priority_fns() -> Mapping[str, str | ComponentSpec]:
    """Return priorities that fall with age and use."""
    return {
        "linear_decay": "trinity.buffer.priority:LinearDecay",
        "decay_limit_randomization": "trinity.buffer.priority:DecayLimitRandomization",
    }


@hookimpl
def trinity_experience_operators() -> Mapping[str, str | ComponentSpec]:
    """Return filters of experiences, and what changes or counts them."""
    return {
        "invalid_reward_filter": "trinity.buffer.operators:InvalidRewardFilter",
        "reward_filter": "trinity.buffer.operators:RewardFilter",
        "reward_std_filter": "trinity.buffer.operators:RewardStdFilter",
        "dapo_dynamic_sampling": "trinity.buffer.operators:DAPODynamicSampling",
        "mask_response_truncated": "trinity.buffer.operators:MaskResponseTruncated",
        "reward_shaping_mapper": "trinity.buffer.reward_shaping:RewardShapingMapper",
        "pass_rate_calculator": ComponentSpec(
            "trinity.buffer.difficulty:PassRateCalculator", provides=frozenset({"task_feedback"})
        ),
    }


@hookimpl
def trinity_task_selectors() -> Mapping[str, str | ComponentSpec]:
    """Return the order of the file, drawn orders, and orders by difficulty."""
    return {
        "sequential": "trinity.buffer.selectors:SequentialSelector",
        "shuffle": "trinity.buffer.selectors:ShuffleSelector",
        "random": "trinity.buffer.selectors:RandomSelector",
        "offline_easy2hard": "trinity.buffer.selectors:EasyToHardSelector",
        "difficulty_based": ComponentSpec(
            "trinity.buffer.difficulty:DifficultyBasedSelector",
            needs=frozenset({"task_feedback"}),
            provides=frozenset({"feedback"}),
        ),
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
