"""``trainer``: how batches become better weights, and the critic."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from trinity.common.config.algorithm import LossAggMode, OptimizerConfig
from trinity.common.config.base import (
    Lowercase,
    StrictModel,
    core,
    machine,
    not_yet,
    other,
    section,
)

__all__ = [
    "CRITIC",
    "RANKS",
    "SHARDED",
    "WHOLE",
    "CriticConfig",
    "CriticOptimizerConfig",
    "MegatronParallelConfig",
    "TrainerConfig",
]


CRITIC = "algorithms with a critic"


class CriticOptimizerConfig(OptimizerConfig):
    """``trainer.critic.optimizer``: as that of the algorithm, with a learning rate of its own."""

    lr: float = core(1e-5, "learning rate", ge=0)


class CriticConfig(StrictModel):
    """``trainer.critic``: how the critic learns.

    Published files set it below ``trainer.trainer_config.critic``: ``optim`` and the rest.
    """

    optimizer: CriticOptimizerConfig = section(CriticOptimizerConfig, "the critic's optimizer")
    cliprange_value: float = other(
        0.5, "how far a value may move from that of before the step", used_by=CRITIC, gt=0
    )
    grad_clip: float = other(1.0, "largest gradient norm; 0: no limit", used_by=CRITIC, ge=0)
    loss_agg_mode: Annotated[LossAggMode, Lowercase] = other(
        "token-mean", "how the errors of tokens become one number", used_by=CRITIC
    )


RANKS = "several ranks of the trainer"
WHOLE = "trainers on GPUs whose ranks have whole models (ddp, or one rank)"
SHARDED = "several ranks of the trainer on GPUs that share the weights (fsdp2)"
_MANY, _MEGATRON = "trainers on many GPUs", "trainer_strategy megatron"
_GRADIENTS = "trainers that keep gradients between steps, which the own one does not"
_OTHER = "other trainers"


def _switch(value: Any) -> Any:
    """Return the word; YAML reads a bare ``on`` as true and ``off`` as false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value.lower() if isinstance(value, str) else value


class MegatronParallelConfig(StrictModel):
    """``trainer.megatron``: how Megatron cuts the model."""

    tensor_model_parallel_size: int = other(1, "GPUs per tensor", used_by=_MEGATRON)
    pipeline_model_parallel_size: int = other(1, "GPUs per pipeline", used_by=_MEGATRON)
    virtual_pipeline_model_parallel_size: int | None = other(
        None, "pieces per GPU of a pipeline", used_by=_MEGATRON
    )
    expert_model_parallel_size: int = other(1, "GPUs that share the experts", used_by=_MEGATRON)
    expert_tensor_parallel_size: int | None = other(
        None, "GPUs per expert's tensor", used_by=_MEGATRON
    )
    context_parallel_size: int = other(1, "GPUs per sequence", used_by=_MEGATRON)
    sequence_parallel: bool = other(True, "share the norms too", used_by=_MEGATRON)


class TrainerConfig(StrictModel):
    """``trainer``: the trainer, its batches in memory and its checkpoints."""

    name: str = core("trainer", "name of the trainer")
    trainer_type: Annotated[str, Lowercase] = machine(
        "verl", "the trainer; the published name means Trinity's own, which is called torch"
    )
    num_ranks: int = core(
        0,
        "processes that share each batch, over Ray; 0: as many as the GPUs that the engines leave, "
        "one where there are none",
        ge=0,
    )
    trainer_strategy: Annotated[Literal["ddp", "fsdp", "fsdp2", "megatron"], Lowercase] = not_yet(
        "ddp",
        "what each rank holds: ddp: the whole model; fsdp2, or fsdp: a part of each weight",
        values=("megatron",),
    )
    save_interval: int = core(0, "train steps between checkpoints; 0: only at the end", ge=0)
    enable_preview: bool = other(
        False, "show rollouts as a table", used_by="monitors that show tables"
    )
    total_steps: int | None = core(None, "train steps after which the run ends", ge=1)
    save_hf_checkpoint: Annotated[Literal["always", "last", "never"], Lowercase] = other(
        "last",
        "when to write the model in the Hugging Face format; every checkpoint of ours holds it",
        used_by="trainers whose checkpoints are in a format of their own",
    )
    grad_clip: float = core(1.0, "largest gradient norm; 0: no limit", ge=0)
    use_dynamic_bsz: bool = other(
        True, "fill micro-batches by tokens; the own trainer always does", used_by=_OTHER
    )
    use_remove_padding: bool = other(
        True, "leave padding out; the own trainer always does", used_by=_OTHER
    )
    balance_batch: bool = other(
        True, "give each rank as many tokens, what rows share counted once", used_by=RANKS
    )
    critic: CriticConfig = section(CriticConfig, "the critic, of algorithms that have one")
    critic_warmup: int = other(
        0, "first steps, in which the critic alone learns", used_by=CRITIC, ge=0
    )
    max_token_len_per_gpu: int | None = core(
        None, "most tokens of a micro-batch; default: 2 x max_model_len, at least 4096", ge=1
    )
    ulysses_sequence_parallel_size: int = core(
        1,
        "ranks that share each sequence; it divides num_ranks; 1 where there are neither GPUs nor "
        "several ranks",
        ge=1,
    )
    fix_actor_microbatch_loss_scale: bool = other(
        False, "weigh micro-batches rightly; the own trainer always does", used_by=_OTHER
    )
    param_offload: bool = other(
        False, "keep weights in CPU memory between train steps", used_by=WHOLE
    )
    optimizer_offload: bool = other(
        False, "keep optimizer states in CPU memory but for the update", used_by=WHOLE
    )
    grad_offload: bool = other(False, "keep gradients in CPU memory", used_by=_GRADIENTS)
    offload_policy: bool = other(
        False,
        "keep weights, gradients and optimizer states in CPU memory, and update there: a layer's "
        "weights come to the GPU for its pass",
        used_by=SHARDED,
    )
    save_strategy: Annotated[
        Literal["single_thread", "single_process", "single_node", "unrestricted"], Lowercase
    ] = other("unrestricted", "who may write checkpoints at the same time", used_by=_MANY)
    sharded_above_gb: float = other(
        20.0,
        "with fsdp2, gigabytes of weights and optimizer above which each rank writes its own part",
        used_by=RANKS,
        ge=0,
    )
    max_checkpoints_to_keep: int = core(0, "older checkpoints are deleted; 0: keep all", ge=0)
    megatron: MegatronParallelConfig = section(MegatronParallelConfig, "how Megatron cuts")
    trainer_config: Any = other({}, "raw settings of another trainer", used_by=_OTHER)
    trainer_config_path: str = other("", "file of such settings", used_by=_OTHER)
    precision: Annotated[Literal["float32", "bfloat16"], Lowercase] = machine(
        "float32", "number format of the trained weights"
    )
    prefix_sharing: Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)] = core(
        "auto",
        "compute equal beginnings once, where a quarter is saved; on refuses a model that cannot",
    )
    gradient_checkpointing: bool = core(
        False, "compute activations again instead of keeping them: less memory, more time"
    )
