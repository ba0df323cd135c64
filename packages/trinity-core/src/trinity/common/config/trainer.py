"""``trainer``: how batches become better weights, and the critic."""

from __future__ import annotations

import re
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
        0.5, "clip range of a value around its value before the step", used_by=CRITIC, gt=0
    )
    grad_clip: float = other(1.0, "maximum gradient norm; 0: no limit", used_by=CRITIC, ge=0)
    loss_agg_mode: Annotated[LossAggMode, Lowercase] = other(
        "token-mean", "aggregation of token errors", used_by=CRITIC
    )


RANKS = "several ranks of the trainer"
WHOLE = "trainers on GPUs whose ranks have whole models (ddp, or one rank)"
SHARDED = "several ranks of the trainer on GPUs that share the weights (fsdp2)"
_MANY, _MEGATRON = "trainers on many GPUs", "trainer_strategy megatron"
_GRADIENTS = "trainers that keep gradients between steps, which the own one does not"
_OTHER = "other trainers"


def switch(value: Any) -> Any:
    """Return the word; YAML reads a bare ``on`` as true and ``off`` as false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return value.lower() if isinstance(value, str) else value


class MegatronParallelConfig(StrictModel):
    """``trainer.megatron``: parallelism of Megatron."""

    tensor_model_parallel_size: int = other(1, "tensor parallelism", used_by=_MEGATRON)
    pipeline_model_parallel_size: int = other(1, "pipeline parallelism", used_by=_MEGATRON)
    virtual_pipeline_model_parallel_size: int | None = other(
        None, "virtual pipeline stages per GPU", used_by=_MEGATRON
    )
    expert_model_parallel_size: int = other(1, "expert parallelism", used_by=_MEGATRON)
    expert_tensor_parallel_size: int | None = other(
        None, "tensor parallelism of experts", used_by=_MEGATRON
    )
    context_parallel_size: int = other(1, "context parallelism", used_by=_MEGATRON)
    sequence_parallel: bool = other(True, "sequence parallelism", used_by=_MEGATRON)


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_Better = Annotated[Literal["max", "min"], Lowercase]
_METRIC = "a metric of the evaluations; default: the reward of the first evaluation set"


class KeepBestConfig(StrictModel):
    """``trainer.keep_best``: the checkpoints that an evaluation found best are never deleted."""

    metric: str = core("", _METRIC)
    mode: _Better = core("max", "whether larger or smaller values are better")
    num: int = core(1, "checkpoints to keep", ge=1)


def _seconds(value: Any) -> Any:
    """Return seconds of ``90m``, ``2h`` or ``1d``; other values as they are."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value) if isinstance(value, str) else None
    return float(found[1]) * _UNITS[found[2]] if found else value


class EarlyStoppingConfig(StrictModel):
    """``trainer.early_stopping``: when a run ends before its last step."""

    metric: str = core("", _METRIC)
    mode: _Better = core("max", "whether larger or smaller values are better")
    patience: int = core(0, "evaluations without improvement until it ends; 0: no limit", ge=0)
    min_delta: float = core(0.0, "an improvement is larger than this", ge=0)
    max_wall_time: Annotated[float | None, BeforeValidator(_seconds)] = core(
        None, "seconds of training in all starts, or 90m, 12h, 2d; null: no limit", gt=0
    )


class TrainerConfig(StrictModel):
    """``trainer``: the trainer, its memory and its checkpoints."""

    name: str = core("trainer", "name of the trainer")
    trainer_type: Annotated[str, Lowercase] = machine(
        "verl", "the trainer; `verl` means Trinity's own trainer, `torch`"
    )
    num_ranks: int = core(
        0,
        "trainer ranks over Ray (data parallelism); 0: one per GPU that no engine uses, or one "
        "without GPUs",
        ge=0,
    )
    trainer_strategy: Annotated[Literal["ddp", "fsdp", "fsdp2", "megatron"], Lowercase] = not_yet(
        "ddp",
        "ddp: each rank has the whole model; fsdp2 or fsdp: sharded weights",
        values=("megatron",),
    )
    fsdp_size: int = other(
        -1,
        "ranks that share the weights (HSDP): fewer than all, such as those of one machine, hold "
        "one copy; must divide num_ranks; -1: all",
        used_by=SHARDED,
        ge=-1,
    )
    save_interval: int = core(0, "train steps between checkpoints; 0: only at the end", ge=0)
    enable_preview: bool = other(
        False, "show rollouts in a table", used_by="monitors that show tables"
    )
    total_steps: int | None = core(None, "train steps after which the run ends", ge=1)
    save_hf_checkpoint: Annotated[Literal["always", "last", "never"], Lowercase] = other(
        "last",
        "when to write the model in Hugging Face format; Trinity's checkpoints always contain it",
        used_by="trainers whose checkpoints are in a format of their own",
    )
    grad_clip: float = core(1.0, "maximum gradient norm; 0: no limit", ge=0)
    use_dynamic_bsz: bool = other(
        True, "fill micro-batches by tokens; Trinity's trainer always does", used_by=_OTHER
    )
    use_remove_padding: bool = other(
        True, "remove padding; Trinity's trainer always does", used_by=_OTHER
    )
    balance_batch: bool = other(
        True, "balance the tokens of ranks; shared prefixes count once", used_by=RANKS
    )
    critic: CriticConfig = section(CriticConfig, "the critic, of algorithms that have one")
    critic_warmup: int = other(0, "first steps, which train only the critic", used_by=CRITIC, ge=0)
    max_token_len_per_gpu: int | None = core(
        None, "maximum tokens of a micro-batch; default: 2 x max_model_len, at least 4096", ge=1
    )
    ulysses_sequence_parallel_size: int = core(
        1,
        "ranks per sequence (Ulysses sequence parallelism); must divide num_ranks; 1 without GPUs "
        "and with one rank",
        ge=1,
    )
    fix_actor_microbatch_loss_scale: bool = other(
        False, "weight micro-batches correctly; Trinity's trainer always does", used_by=_OTHER
    )
    param_offload: bool = other(
        False, "offload weights to CPU memory between train steps", used_by=WHOLE
    )
    optimizer_offload: bool = other(
        False, "offload optimizer states to CPU memory, except during the update", used_by=WHOLE
    )
    grad_offload: bool = other(False, "offload gradients to CPU memory", used_by=_GRADIENTS)
    offload_policy: bool = other(
        False,
        "FSDP CPU offload: weights, gradients, optimizer states and the update in CPU memory; a "
        "layer's weights are on the GPU during its pass",
        used_by=SHARDED,
    )
    save_strategy: Annotated[
        Literal["single_thread", "single_process", "single_node", "unrestricted"], Lowercase
    ] = other(
        "unrestricted", "which processes may write checkpoints at the same time", used_by=_MANY
    )
    sharded_above_gb: float = other(
        20.0,
        "with fsdp2: above this size of weights and optimizer, in GB, checkpoints are sharded",
        used_by=RANKS,
        ge=0,
    )
    max_checkpoints_to_keep: int = core(0, "delete older checkpoints; 0: keep all", ge=0)
    keep_best: KeepBestConfig | None = core(None, "checkpoints that are not deleted: the best")
    early_stopping: EarlyStoppingConfig | None = core(None, "when the run ends before its end")
    megatron: MegatronParallelConfig = section(MegatronParallelConfig, "parallelism of Megatron")
    trainer_config: Any = other({}, "raw settings of the other trainer", used_by=_OTHER)
    trainer_config_path: str = other("", "file with these settings", used_by=_OTHER)
    precision: Annotated[Literal["float32", "bfloat16"], Lowercase] = machine(
        "float32", "number format of the trained weights"
    )
    prefix_sharing: Annotated[Literal["auto", "on", "off"], BeforeValidator(switch)] = core(
        "auto",
        "compute shared prefixes once if it saves a quarter; auto on GPUs: not if responses have "
        "more tokens than prompts; on: refuse models that cannot",
    )
    gradient_checkpointing: bool = core(
        False, "recompute activations in the backward pass: less memory, more time"
    )
