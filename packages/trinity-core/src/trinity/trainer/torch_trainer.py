"""Train a model on batches of experiences, in one process.

    experiences -> batch -> reference -> advantages -> micro-batches: loss, backward -> optimizer
                                                                                          |
    snapshot() <- version + 1 <-----------------------------------------------------------+

B rows of a batch or micro-batch   R response
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trinity.algorithm.advantage_fn import apply_advantage
from trinity.algorithm.entropy_loss_fn import EntropyLossFn, NoEntropyLossFn
from trinity.common.batch import ExperienceBatch, Fields
from trinity.common.metrics import Metrics, with_prefix
from trinity.common.ports import WeightSnapshot, WeightVersion
from trinity.errors import DataError
from trinity.trainer import checkpoint
from trinity.trainer.batch_metrics import batch_metrics
from trinity.trainer.finite import not_finite
from trinity.trainer.losses import weighted_loss
from trinity.trainer.microbatch import model_inputs, plan_microbatches
from trinity.trainer.optimizer import make_lr_schedule, make_optimizer
from trinity.trainer.parts import build_parts
from trinity.trainer.policy import Policy, load_policy
from trinity.trainer.stopwatch import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from transformers import PreTrainedModel

    from trinity.common.config import Config
    from trinity.common.experience import Experience
    from trinity.trainer.logprobs import EntropyUse

__all__ = ["TorchTrainer"]

MAX_PADDING = {"cuda": 4096}  # tokens that cost less than one more micro-batch; elsewhere 128


class TorchTrainer:
    """Makes one optimizer step of each batch.

    The gradient is that of the whole batch, however it is cut. The rollout's log-probabilities are
    the old ones; where they may not be used, the policy's own are, which costs nothing as a batch
    is one step.

    Args:
        config: a resolved configuration.
        model_path: the model to start from, which is the reference too.
        total_steps: steps of the run, for the learning rate.
        seed: of whatever the model's file does not hold.
    """

    def __init__(self, config: Config, *, model_path: str, total_steps: int, seed: int) -> None:
        torch.manual_seed(seed)
        self._config = config
        self._model_path = model_path
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._parts = build_parts(config.algorithm)
        self._policy = self._load(is_trained=True)
        if config.trainer.gradient_checkpointing:
            _enable_checkpointing(self._policy.module)
        self._reference: Policy | None = None  # None: not needed so far
        self._optimizer = make_optimizer(self.model.parameters(), config.algorithm.optimizer)
        self._lr = make_lr_schedule(config.algorithm.optimizer, total_steps=total_steps)
        self._version = 0

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
        """Return how many optimizer steps the weights have had."""
        return WeightVersion(self._version)

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step on these experiences.

        A batch that the advantage function leaves empty, or whose tokens are all masked, changes
        nothing.

        Raises:
            DataError: rows lack what the algorithm needs.
            TrinityError: loss or gradient is not a finite number; the weights are as before.
        """
        watch = Stopwatch(self._device)
        batch, metrics = self._prepared(experiences, watch)
        if not len(batch) or not bool(batch["action_mask"].any()):
            return metrics | watch.metrics | {"actor/skipped_batch": 1.0}
        plan = self._plan(batch)
        with watch("forward_backward"), self._recomputing():
            metrics |= with_prefix("actor", self._accumulate(batch, plan, step=step))
        with watch("optimizer"):
            metrics |= with_prefix("actor", self._update(batch, step=step))
        return metrics | batch_metrics(batch.experiences, plan) | watch.metrics

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the weights by their names in the model, tied ones once.

        Args:
            copy: False: the trainer's own tensors, which the next step changes.
        """
        tensors = {name: tensor.detach() for name, tensor in self.model.named_parameters()}
        if copy:
            tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        return WeightSnapshot(version=self.version, tensors=tensors)

    def save(self, directory: Path) -> None:
        """Write what :meth:`load` needs to go on as if nothing had happened."""
        self.save_hf(directory / checkpoint.MODEL_FOLDER)
        penalty = self._parts.kl_penalty_fn
        state = {
            "version": self._version,
            "optimizer": self._optimizer.state_dict(),
            "random": checkpoint.random_state(),
            "kl_penalty_coef": None if penalty is None else penalty.kl_coef,
        }
        checkpoint.save_state(directory, state)

    def load(self, directory: Path) -> None:
        """Go on from what :meth:`save` wrote.

        Raises:
            CheckpointError: it cannot be read, or is of another model.
        """
        state = checkpoint.load_state(directory)
        checkpoint.load_weights(
            self.model,
            directory / checkpoint.MODEL_FOLDER,
            trust_remote_code=self._config.model.trust_remote_code,
        )
        self._optimizer.load_state_dict(state["optimizer"])
        checkpoint.restore_random_state(state["random"])
        if self._parts.kl_penalty_fn is not None and state["kl_penalty_coef"] is not None:
            self._parts.kl_penalty_fn.kl_coef = state["kl_penalty_coef"]
        self._version = state["version"]

    def save_hf(self, directory: Path) -> None:
        """Write the model and its tokenizer in the Hugging Face format."""
        checkpoint.save_hf(
            self.model,
            directory,
            tokenizer_path=self._model_path,
            trust_remote_code=self._config.model.trust_remote_code,
        )

    def close(self) -> None:
        """Free the gradients and the reference model."""
        self._optimizer.zero_grad(set_to_none=True)
        self._reference = None

    def _prepared(
        self, experiences: Sequence[Experience], watch: Stopwatch
    ) -> tuple[ExperienceBatch, Metrics]:
        try:
            batch = ExperienceBatch.from_experiences(experiences)
        except ValueError as error:
            raise DataError(f"the experiences make no batch: {error}") from error
        metrics: Metrics = {}
        if self._parts.kl_penalty_fn is not None:
            with watch("reference"):
                self._require_logprobs(batch)
            batch, numbers = self._parts.kl_penalty_fn.apply_kl_penalty_to_reward(batch)
            metrics |= with_prefix("actor/kl_penalty", numbers)
        advantage_fn = self._parts.advantage_fn
        if advantage_fn is not None and (
            advantage_fn.compute_in_trainer() or "advantages" not in batch
        ):
            with watch("advantage"):
                batch, numbers = apply_advantage(advantage_fn, batch)
            metrics |= numbers
        if len(batch) and self._parts.loss_needs_reference and "ref_logprob" not in batch:
            with watch("reference"):
                batch["ref_logprob"] = self._scored(self._reference_policy(), batch)
        return batch, metrics

    def _require_logprobs(self, batch: ExperienceBatch) -> None:
        if "old_logprob" not in batch or not self._may_reuse(batch):
            batch["old_logprob"] = self._scored(self._policy, batch)
        batch["ref_logprob"] = self._scored(self._reference_policy(), batch)

    def _may_reuse(self, batch: ExperienceBatch) -> bool:
        """Return whether the rollout's log-probabilities are the old ones."""
        if self._config.algorithm.bypass_old_logprobs:
            return True
        return all(exp.info.get("model_version") == self._version for exp in batch.experiences)

    def _plan(self, batch: ExperienceBatch) -> list[list[int]]:
        return plan_microbatches(
            [len(exp.tokens) for exp in batch.experiences],
            max_tokens=self._config.trainer.max_token_len_per_gpu,
            max_padding=MAX_PADDING.get(self._device.type, 128),
            keep_order=not self._parts.algorithm.setting("can_balance_batch"),
        )

    def _accumulate(
        self, batch: ExperienceBatch, plan: Sequence[Sequence[int]], *, step: int
    ) -> Metrics:
        """Add each micro-batch's share of the gradient; return the batch's metrics."""
        whole_mask_BR = batch["action_mask"]
        is_reused = self._may_reuse(batch)
        totals: Metrics = {}
        self._optimizer.zero_grad(set_to_none=True)  # a step that failed has left some
        for rows in plan:
            part = batch.select(rows)
            fields = self._scored_fields(part, is_reused=is_reused)
            share = weighted_loss(self._parts, fields, whole_mask_BR=whole_mask_BR)
            if not math.isfinite(share.metrics["loss"]):
                raise not_finite("loss", share.metrics["loss"], part, step=step)
            share.loss.backward()
            for name, value in share.metrics.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    @contextmanager
    def _recomputing(self) -> Iterator[None]:
        """Let activations be computed again, which transformers does in training mode only."""
        self.model.train(self._config.trainer.gradient_checkpointing)
        try:
            yield
        finally:
            self.model.eval()

    def _scored_fields(self, part: ExperienceBatch, *, is_reused: bool) -> Fields:
        entropy_fn = self._parts.entropy_loss_fn
        inputs = model_inputs(part.experiences, part["action_mask"])
        scores = self._policy.score(inputs, entropy=_entropy_use(entropy_fn))
        values = {
            name: value.to(self._device) if isinstance(value, Tensor) else value
            for name, value in part.batch.items()
        }
        if "old_logprob" in values:
            values["sampled_logprob"] = values["old_logprob"]
        if "old_logprob" not in values or not is_reused:
            values["old_logprob"] = scores.logprob_BR.detach()
        if scores.entropy_BR is not None:
            values["entropy"] = scores.entropy_BR
        return Fields(values | {"logprob": scores.logprob_BR})

    def _update(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        limit = self._config.trainer.grad_clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), limit).item()
        if not math.isfinite(norm):
            raise not_finite("gradient norm", norm, batch, step=step)
        lr = self._lr(self._version)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._version += 1
        return {"grad_norm": norm, "lr": lr}

    @torch.no_grad()
    def _scored(self, policy: Policy, batch: ExperienceBatch) -> Tensor:
        """Return ``[B, R]`` log-probabilities on the CPU."""
        mask_BR = batch["action_mask"]
        logprob_BR = torch.zeros(mask_BR.shape)
        for rows in self._plan(batch):
            inputs = model_inputs([batch.experiences[row] for row in rows], mask_BR[rows])
            logprob_BR[rows] = policy.score(inputs).logprob_BR.float().cpu()
        return logprob_BR

    def _reference_policy(self) -> Policy:
        if self._reference is None:
            self._reference = self._load(is_trained=False)
        return self._reference

    def _load(self, *, is_trained: bool) -> Policy:
        return load_policy(
            self._model_path,
            device=self._device,
            precision=self._config.trainer.precision,
            is_trained=is_trained,
            trust_remote_code=self._config.model.trust_remote_code,
        )


def _entropy_use(entropy_fn: EntropyLossFn) -> EntropyUse:
    if isinstance(entropy_fn, NoEntropyLossFn):
        return None
    return getattr(entropy_fn, "entropy_coef", 1.0) != 0.0


def _enable_checkpointing(module: PreTrainedModel) -> None:
    """Compute activations again in the backward pass; dropout stays off."""
    older_name = "gradient_checkpointing_enable"  # all that earlier releases of transformers 5 know
    enable = getattr(module, "activation_checkpointing_enable", None) or getattr(module, older_name)
    enable({"use_reentrant": False})
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if hasattr(part, "attention_dropout"):
            part.attention_dropout = 0.0
