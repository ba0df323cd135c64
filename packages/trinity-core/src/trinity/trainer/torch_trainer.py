"""Train a model on batches of experiences, in one process or in one of several.

    experiences -> batch -> critic's step -> micro-batches: loss, backward -> optimizer
                                                                                   |
    snapshot() <- version + 1 <----------------------------------------------------+

B rows of a batch or micro-batch   R response
"""

from __future__ import annotations

import math
import time
from contextlib import contextmanager, nullcontext
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from trinity.common.batch import Fields
from trinity.common.metrics import Metrics, with_prefix
from trinity.common.ports import Trainer, WeightSnapshot, WeightVersion
from trinity.common.ports.weights import TensorStream
from trinity.errors import ConfigError
from trinity.trainer.algorithm_builder import build_algorithm_parts
from trinity.trainer.algorithm_parts import StepAudit, not_finite, weighted_loss
from trinity.trainer.checkpoint import Checkpointer
from trinity.trainer.critic import Critic
from trinity.trainer.dtensor import DTensor, full_tensor
from trinity.trainer.lora import is_own_reference, travel_alone
from trinity.trainer.memory_plan import MemoryPlan
from trinity.trainer.microbatch import select_inputs
from trinity.trainer.model_loading import ModelLoader
from trinity.trainer.offload import Offload
from trinity.trainer.optimizer import apply_gradients, make_lr_schedule, make_optimizer, states_here
from trinity.trainer.policy import Wanted
from trinity.trainer.preparation import Preparation
from trinity.trainer.ranks import Ranks
from trinity.trainer.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from torch.distributed import ProcessGroup
    from transformers import PreTrainedModel

    from trinity.common.batch import ExperienceBatch
    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.errors import TrinityError
    from trinity.trainer.microbatch import ModelInputs, Plan
    from trinity.trainer.prefix_tree import Pack

_DDP_ALONE = "trainer.trainer_strategy fsdp2 shards no critic over the trainer's ranks. Use ddp."
_SP_ALONE = (
    "trainer.ulysses_sequence_parallel_size above 1 shares the sequences of neither "
    "LoRA adapters nor a critic between the trainer's ranks. Set it to 1."
)


class TorchTrainer(Trainer):
    """Makes one optimizer step of each batch.

    The gradient is that of the whole batch, however it is cut. The rollout's log-probabilities are
    the old ones; where they may not be used, the policy's own are, which costs nothing as a batch
    is one step.

    Args:
        config: a resolved configuration.
        model_path: the model to start from, which is the reference too.
        total_steps: steps of the run, for the learning rate.
        seed: of whatever the model's file does not hold.
        group: processes that share each batch, every one of which gets all of it; None: this one.
    """

    #: what a trainer of another kind has in their place
    loader_class: ClassVar[type[ModelLoader]] = ModelLoader
    scorer_class: ClassVar[type[Scorer]] = Scorer
    checkpointer_class: ClassVar[type[Checkpointer]] = Checkpointer

    def __init__(
        self,
        config: Config,
        *,
        model_path: str,
        total_steps: int,
        seed: int,
        group: ProcessGroup | None = None,
    ) -> None:
        torch.manual_seed(seed)
        self._ranks = _ranks(config, group)
        self._config, self._model_path = config, model_path
        self._parts = build_algorithm_parts(config.algorithm)
        if self._ranks.sp_group and (config.model.lora_configs or self._parts.has_critic):
            raise ConfigError(_SP_ALONE)
        if self._ranks.is_sharded and self._parts.has_critic:
            raise ConfigError(_DDP_ALONE)
        self._models = self.loader_class(config, model_path=model_path, ranks=self._ranks)
        self._device = self._models.device
        self._offload = Offload.of(
            config.trainer, device=self._device, is_sharded=self._ranks.is_sharded
        )
        self._policy, self._adapters = self._models.trained()
        self._scorer = self.scorer_class(
            config,
            parts=self._parts,
            policy=self._policy,
            load_reference=None if is_own_reference(self.model) else self._models.reference,
            ranks=self._ranks,
        )
        self._critic = self._make_critic(total_steps) if self._parts.has_critic else None
        self._audit = StepAudit(is_on=config.audit != "off")
        self._preparation = Preparation(
            self._parts,
            audit=self._audit,
            scorer=self._scorer,
            critic=self._critic,
            bypass_old_logprobs=config.algorithm.bypass_old_logprobs,
        )
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self._optimizer = make_optimizer(trained, config.algorithm.optimizer)
        self._lr = make_lr_schedule(config.algorithm.optimizer, total_steps=total_steps)
        self._checkpointer = self.checkpointer_class(
            config,
            model_path=model_path,
            model=self.model,
            adapters=self._adapters,
            ranks=self._ranks,
        )
        self._memory = MemoryPlan(
            config.trainer,
            model=self.model,
            num_ranks=self._ranks.size,
            has_reference=self._parts.loss_needs_reference or bool(self._parts.kl_penalty_fn),
            critic=self._critic and self._critic.module["body"].config,
        )
        self._version = 0
        self._trained: ExperienceBatch | None = None  # of the last step, until somebody asks
        if self._offload is not None:
            self._offload.offload(self._modules())

    @property
    def model(self) -> PreTrainedModel:
        """Return the transformers model, whose tensors are updated in place."""
        return self._policy.module

    @property
    def module(self) -> PreTrainedModel:
        """Return the same, under the name by which an engine shares it."""
        return self._policy.module

    @property
    def version(self) -> WeightVersion:
        return WeightVersion(self._version)

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step on these experiences.

        A batch that the advantage function leaves empty, or whose tokens are all masked, changes
        no weight; it is an optimizer step as the others, and the schedule goes on.

        Raises:
            DataError: rows lack what the algorithm needs.
            ModelError: the GPU has no memory left.
            TrinityError: loss or gradient is not a finite number; the weights are as before.
        """
        watch = Stopwatch(self._device)
        with self._phase("forward pass"), self._weights_here():
            batch, metrics = self._preparation.batch_of(experiences, watch, version=self._version)
            self._trained = batch
            if not len(batch) or not bool(batch["action_mask"].any()):
                self._version += 1  # who counts steps counts this one
                return metrics | watch.metrics | {"actor/skipped_batch": 1.0}
            if self._critic is not None:
                with watch("critic"):
                    metrics |= with_prefix("critic", self._critic.train_step(batch, step=step))
            plan = self._scorer.plan(batch)
            if self._critic is not None and step <= self._config.trainer.critic_warmup:
                self._version += 1  # the policy waits: the weights of the next step are the same
            else:
                with watch("forward_backward"), self._policy.recomputing():
                    metrics |= with_prefix("actor", self._accumulate(batch, plan, step=step))
                with watch("optimizer"), self._phase("optimizer"):
                    metrics |= with_prefix("actor", self._update(batch, step=step))
        if self._config.explorer.rollout_model.enable_sleep_mode and self._device.type == "cuda":
            torch.cuda.empty_cache()  # an engine on this GPU wakes up
        shape = batch_metrics(batch.experiences, plan)
        return metrics | shape | watch.metrics | self._audit.take()

    def trained_batch(self) -> ExperienceBatch | None:
        batch, self._trained = self._trained, None
        return batch

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        with self._phase("weight sync"):
            tensors = self._weights(copy=copy)
        snapshot = WeightSnapshot(version=self.version, tensors=tensors)
        if isinstance(tensors, TensorStream) or not any(
            isinstance(one, DTensor) for one in tensors.values()
        ):
            return snapshot
        dtype = self._config.explorer.rollout_model.dtype
        return TensorStream.rounded(snapshot, dtype, self._gathered)

    def _gathered(self, _: str, tensor: Tensor) -> Tensor:
        with self._phase("weight sync"):
            return full_tensor(tensor)

    def _weights(self, *, copy: bool) -> Mapping[str, Tensor]:
        is_alone = self._adapters is not None and travel_alone(self._config)
        if is_alone and (factors := self._adapters.factors()):
            return factors
        if self._adapters is not None and not copy:
            return self._adapters.stream(is_kept=self._ranks.rank == 0)
        if self._adapters is not None or (self._ranks.is_sharded and copy):
            return self._checkpointer.full_weights()
        tensors = {name: tensor.detach() for name, tensor in self.model.named_parameters()}
        return {name: tensor.clone() for name, tensor in tensors.items()} if copy else tensors

    def save(self, directory: Path) -> None:
        penalty, critic = self._parts.kl_penalty_fn, self._critic
        self._checkpointer.save(
            directory,
            optimizer=self._optimizer,
            others={
                "version": self._version,
                "kl_penalty_coef": None if penalty is None else penalty.kl_coef,
            },
            beside=(lambda: None) if critic is None else (lambda: critic.save(directory)),
        )

    def load(self, directory: Path) -> None:
        with self._weights_here(), states_here(self._optimizer, self._offload):
            state = self._checkpointer.load(directory, optimizer=self._optimizer)
            if self._critic is not None:
                self._critic.load(directory)
        if self._parts.kl_penalty_fn is not None and state["kl_penalty_coef"] is not None:
            self._parts.kl_penalty_fn.kl_coef = state["kl_penalty_coef"]
        self._version = state["version"]

    def save_hf(self, directory: Path) -> None:
        self._checkpointer.save_hf(directory)

    def close(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)
        self._scorer.reference = None

    def _accumulate(self, batch: ExperienceBatch, plan: Plan, *, step: int) -> Metrics:
        """Add each micro-batch's share of the gradient; return the batch's metrics."""
        self._optimizer.zero_grad(set_to_none=True)  # a step that failed has left some
        with self._ranks.summing() as metrics:
            metrics.own = self._backward(batch, plan, step=step)
        self._ranks.all_reduce_gradients(self.model.parameters())
        return metrics.total

    def _backward(self, batch: ExperienceBatch, plan: Plan, *, step: int) -> Metrics | TrinityError:
        """Return this process's part of the metrics, or what is wrong, once all passes are made."""
        is_reused = self._preparation.may_reuse(batch, version=self._version)
        totals: Metrics = {}
        failure: TrinityError | None = None
        for micro_step in self._ranks.micro_steps(plan):
            if micro_step.packs is None:
                self._policy.dummy_pass(num_passes=micro_step.num_passes).backward()
                continue
            part, inputs = select_inputs(batch, micro_step.packs)
            wanted = Wanted(entropy=self._parts.entropy_use, num_passes=micro_step.num_passes)
            fields = self._scored_fields(part, inputs, wanted, is_reused=is_reused)
            self._audit.compare(part, fields, version=self._version)
            with self._audit.unchanged("policy_loss_fn", fields):
                share = weighted_loss(self._parts, fields, whole=batch.batch)
            if failure is None and not math.isfinite(share.metrics["loss"]):
                failure = not_finite("loss", share.metrics["loss"], part, step=step)
            with self._phase("backward pass"):
                share.loss.backward()
            for name, value in share.metrics.items():
                totals[name] = totals.get(name, 0.0) + value
        return failure or totals

    def _scored_fields(
        self, part: ExperienceBatch, inputs: ModelInputs, wanted: Wanted, *, is_reused: bool
    ) -> Fields:
        scores = self._policy.score(inputs, wanted)
        values = {
            name: value.to(self._device, non_blocking=True) if isinstance(value, Tensor) else value
            for name, value in part.batch.items()
        }
        if "old_logprob" in values:
            values.setdefault("sampled_logprob", values["old_logprob"])
        if "old_logprob" not in values or not is_reused:
            values["old_logprob"] = scores.logprob.detach()
        if scores.entropy is not None:
            values["entropy"] = scores.entropy
        return Fields(values | {"logprob": scores.logprob})

    def _update(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        lr, limit = self._lr(self._version), self._config.trainer.grad_clip
        norm = apply_gradients(self._optimizer, max_norm=limit, lr=lr, offload=self._offload)
        if not math.isfinite(norm):
            raise not_finite("gradient norm", norm, batch, step=step)
        self._version += 1
        return {"grad_norm": norm, "lr": lr}

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        """Run the block as a phase of a step: where memory runs out, the error says which."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise self._memory.explained(error, phase=name) from error

    def _weights_here(self) -> AbstractContextManager[None]:
        return nullcontext() if self._offload is None else self._offload.weights(self._modules)

    def _modules(self) -> list[nn.Module]:
        """Return all that is computed with, of what is there by now."""
        reference, critic = self._scorer.reference, self._critic
        beside = [] if critic is None else [critic.module]
        return [self.model, *([] if reference is None else [reference.module]), *beside]

    def _make_critic(self, total_steps: int) -> Critic:
        path = self._config.model.critic_model_path or self._model_path
        return Critic(
            self._config.trainer.critic,
            body=self._models.load(path),
            scorer=self._scorer,
            total_steps=total_steps,
            ranks=self._ranks,
            offload=self._offload,
        )


def _ranks(config: Config, group: ProcessGroup | None) -> Ranks:
    size = config.trainer.ulysses_sequence_parallel_size
    return Ranks(
        group,
        is_sharded=config.trainer.trainer_strategy != "ddp",
        fsdp_size=config.trainer.fsdp_size,
        sp_size=size,
        timeout_s=config.synchronizer.sync_timeout if size > 1 else 0.0,
    )


class Stopwatch:
    """Adds up seconds by name, GPU work included."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of the block to ``time/<name>_s``."""
        start = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        key = f"time/{name}_s"
        self._seconds[key] = self._seconds.get(key, 0.0) + time.perf_counter() - start

    @property
    def metrics(self) -> dict[str, float]:
        return dict(self._seconds)


def batch_metrics(experiences: Sequence[Experience], plan: Sequence[Sequence[Pack]]) -> Metrics:
    """Return lengths, token counts, what is computed once for several rows, and the padding."""
    lengths = [len(exp.tokens) for exp in experiences]
    distinct = sum(len(pack) for packs in plan for pack in packs)
    padded = sum(len(packs) * max(map(len, packs)) for packs in plan)
    return {
        **_spread("response_length", [exp.response_length for exp in experiences]),
        **_spread("prompt_length", [exp.prompt_length for exp in experiences]),
        "perf/total_num_tokens": float(sum(lengths)),
        "perf/tokens_computed": float(distinct),
        "perf/tokens_saved": float(sum(lengths) - distinct),
        "perf/shared_ratio": 1.0 - distinct / sum(lengths),
        "perf/padding_ratio": 1.0 - distinct / padded,
        "perf/num_micro_batches": float(len(plan)),
        "perf/num_samples": float(len(lengths)),
    }


def _spread(name: str, values: Sequence[int]) -> Metrics:
    return {
        f"{name}/mean": fmean(values),
        f"{name}/max": float(max(values)),
        f"{name}/min": float(min(values)),
    }
