"""Train with a Tinker service: losses are computed here, gradients there.

    experiences -> batch -> forward (service) -> loss on log-probabilities (here)
                                                     |  its gradient: a weight for each token
    snapshot() <- optim_step <- forward_backward ----+  cross_entropy, linear in them (service)

The whole batch is here, so any loss on log-probabilities works, with its aggregation mode.

B rows of a batch   R response
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoTokenizer
from trinity.algorithm.ops import masked
from trinity.common.batch import Fields
from trinity.common.metrics import Metrics, with_prefix
from trinity.common.ports import Trainer, WeightSnapshot
from trinity.errors import ConfigError, DataError, ModelError
from trinity.trainer.algorithm_builder import build_algorithm_parts
from trinity.trainer.algorithm_parts import StepAudit, not_finite, weighted_loss
from trinity.trainer.optimizer import make_lr_schedule
from trinity.trainer.preparation import Preparation
from trinity.trainer.torch_trainer import Stopwatch

from trinity_tinker.client.connection import (
    connected,
    end_session,
    finished,
    naming,
)
from trinity_tinker.client.refusals import unsupported, unsupported_parts
from trinity_tinker.client.scorer import ServiceScorer, datums_of, scores_in
from trinity_tinker.client.server_loss import clip_of, refused_loss, weighted_datums
from trinity_tinker.client.start import STATE_FILE, read_state, start_of
from trinity_tinker.client.weights import path_in, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity.common.batch import ExperienceBatch
    from trinity.common.config import Config
    from trinity.common.experience import Experience

__all__ = ["TinkerTrainer"]

logger = logging.getLogger("trinity.tinker")

_SAMPLER_TTL_S = 30 * 86400  # of the newest weights, which are sampled until there are others
_REPLACED_TTL_S = 4 * 3600  # of the ones before: for replies and evaluations under way
_EPS = 1e-8  # of AdamW, as the trainer torch has it


class TinkerTrainer(Trainer):
    """Makes one optimizer step of each batch on an adapter of a service.

    Args:
        config: a resolved configuration.
        model_path: the base model, as the service knows it, or a checkpoint; the reference too.
        total_steps: steps of the run, for the learning rate.
        seed: of the adapter, where ``model.tinker.seed`` is None.

    Raises:
        ConfigError: a setting is not supported, there is no service, or it lacks the model.
    """

    def __init__(self, config: Config, *, model_path: str, total_steps: int, seed: int) -> None:
        self._config = config
        self._parts = build_algorithm_parts(config.algorithm)
        found = unsupported(config) + unsupported_parts(self._parts)
        if name := config.model.tinker.server_loss_fn:
            found += refused_loss(name, self._parts)
        if found := list(dict.fromkeys(found)):
            raise ConfigError("not supported with a Tinker service:\n  " + "\n  ".join(found))
        self._model_path = model_path
        self._service = connected(config.model.tinker.base_url)
        self._start = start_of(config.model.tinker.base_url, model_path)
        self._policy = self._adapter(seed)
        scorer = ServiceScorer(
            lambda: self._policy,
            service=self._service,
            start=self._start,
            max_len=config.model.max_model_len,
        )
        self._scorer = scorer
        self._audit = StepAudit(is_on=config.audit != "off")
        self._preparation = Preparation(
            self._parts,
            audit=self._audit,
            scorer=scorer,  # type: ignore[arg-type]  # what Preparation calls of a Scorer
            critic=None,
            bypass_old_logprobs=config.algorithm.bypass_old_logprobs,
        )
        self._lr = make_lr_schedule(config.algorithm.optimizer, total_steps=total_steps)
        self._version = 0
        self._saved: WeightSnapshot | None = None  # of this version, once it was asked for
        self._trained: ExperienceBatch | None = None

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step on these experiences.

        Raises:
            DataError: rows lack what the algorithm needs, or were sampled at another temperature.
            ModelError: the service refuses it, or fails.
            TrinityError: the loss is not a finite number; the weights are as before.
        """
        watch = Stopwatch(torch.device("cpu"))
        for exp in experiences:
            if exp.temperature not in {None, 1.0}:
                raise DataError(
                    f"experience {exp.eid} was sampled at temperature {exp.temperature}; a Tinker "
                    f"service scores at 1.0. Leave rollout_args.temperature at 1.0."
                )
        batch, metrics = self._preparation.batch_of(experiences, watch, version=self._version)
        self._trained = batch
        if not len(batch) or not bool(batch["action_mask"].any()):
            self._version += 1
            return metrics | watch.metrics | {"actor/skipped_batch": 1.0}
        with watch("forward_backward"):
            metrics |= with_prefix("actor", self._backward(batch, step=step))
        with watch("optimizer"):
            metrics |= with_prefix("actor", self._update(batch, step=step))
        return metrics | watch.metrics | self._audit.take()

    def trained_batch(self) -> ExperienceBatch | None:
        """Return the batch of the last step as the losses saw it, once."""
        batch, self._trained = self._trained, None
        return batch

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the path of the weights, which the service has saved for sampling."""
        del copy
        if self._saved is None or self._saved.version != self._version:
            with naming("save_weights_for_sampler"):
                name = _new_name("sync", self._version)
                saved = finished(
                    self._policy.save_weights_for_sampler(name, ttl_seconds=_SAMPLER_TTL_S)
                )
            if self._saved is not None:
                self._let_expire(path_in(self._saved))
            self._saved = snapshot_of(saved.path, version=self._version)
        return self._saved

    def save(self, directory: Path) -> None:
        """Have the service save adapter and optimizer; write their path, and the tokenizer."""
        with naming("save_state"):
            path = finished(self._policy.save_state(_new_name("state", self._version))).path
        for part in (AutoTokenizer, AutoConfig):
            part.from_pretrained(self._model_path).save_pretrained(directory / "huggingface")
        with naming("save_weights_for_sampler"):  # those of a snapshot expire
            name = _new_name("sampler", self._version)
            sampler = finished(self._policy.save_weights_for_sampler(name)).path
        state = replace(self._start, state=path, sampler=sampler, version=self._version)
        (directory / STATE_FILE).write_text(json.dumps(asdict(state)), encoding="utf-8")

    def load(self, directory: Path) -> None:
        """Go on from what :meth:`save` wrote, with a new adapter of the service.

        Raises:
            CheckpointError: another trainer wrote it.
            ModelError: the service does not have the state any more.
        """
        state = read_state(directory)
        with naming(f"load_weights of {state.state}"):
            self._policy = finished(
                self._service.create_training_client_from_state_with_optimizer(state.state)
            )
        self._version = state.version
        self._saved = None  # a later version may have the number of one that is saved

    def close(self) -> None:
        """End the session with the service, which keeps what was saved."""
        end_session(self._service)

    @cached_property
    def _rest(self) -> Any:  # Any: a RestClient
        import tinker

        return tinker.RestClient(base_url=self._config.model.tinker.base_url)

    def _let_expire(self, path: str) -> None:
        try:
            with naming("set_checkpoint_ttl"):
                finished(self._rest.set_checkpoint_ttl_from_tinker_path(path, _REPLACED_TTL_S))
        except ModelError as error:
            logger.warning("%s stays at the service for 30 days: %s", path, error)

    def _adapter(self, seed: int) -> Any:  # Any: a TrainingClient
        """Return a new adapter, or that of the checkpoint which the run starts from."""
        given, start = self._config.model.tinker, self._start
        if start.state:
            with naming(f"load_weights of {start.state}"):
                made = finished(self._service.create_training_client_from_state(start.state))
                rank = made.get_info().lora_rank
            if rank != given.rank:
                raise ConfigError(
                    f"model.tinker.rank is {given.rank}, and {self._model_path} has an adapter of "
                    f"rank {rank}. Use {rank}."
                )
            return made
        with naming(f"create_model, with model.tinker.rank {given.rank}"):
            return finished(
                self._service.create_lora_training_client(
                    base_model=start.base_model,
                    rank=given.rank,
                    seed=seed if given.seed is None else given.seed,
                    train_mlp=given.train_mlp,
                    train_attn=given.train_attn,
                    train_unembed=given.train_unembed,
                )
            )

    def _on_server(self, name: str, batch: ExperienceBatch, *, step: int) -> Metrics:
        """Have the service compute the loss and its gradient; return its metrics."""
        data = weighted_datums(self._parts, batch)
        with naming("forward_backward"):
            config = clip_of(name, self._parts)
            output = finished(self._policy.forward_backward(data, name, loss_fn_config=config))
        loss = float(output.metrics["loss:sum"])
        if not math.isfinite(loss):
            raise not_finite("loss", loss, batch, step=step)
        mask_BR, sampled_BR = batch["action_mask"], batch["old_logprob"]
        gap_BR = masked(scores_in(output, batch) - sampled_BR, mask_BR.bool()).abs()
        return {"loss": loss, "rollout_logprob_diff": gap_BR.sum().item() / int(mask_BR.sum())}

    def _backward(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        """Send the gradient of the loss; return its metrics."""
        if name := self._config.model.tinker.server_loss_fn:
            return self._on_server(name, batch, step=step)
        logprob_BR = self._scorer.logprobs(batch).requires_grad_()
        values = dict(batch.batch)
        if "old_logprob" in values:
            values.setdefault("sampled_logprob", values["old_logprob"])
        is_reused = self._preparation.may_reuse(batch, version=self._version)
        if "old_logprob" not in values or not is_reused:
            values["old_logprob"] = logprob_BR.detach()
        fields = Fields(values | {"logprob": logprob_BR})
        self._audit.compare(batch, fields, version=self._version)
        with self._audit.unchanged("policy_loss_fn", fields):
            share = weighted_loss(self._parts, fields, whole=batch.batch)
        if not math.isfinite(share.metrics["loss"]):
            raise not_finite("loss", share.metrics["loss"], batch, step=step)
        share.loss.backward()
        # d(-w * logprob) = -w: cross_entropy with these weights has the gradient of the loss.
        data = datums_of(batch.experiences, {"weights": -logprob_BR.grad})
        with naming("forward_backward"):
            finished(self._policy.forward_backward(data, "cross_entropy"))
        return share.metrics

    def _update(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        import tinker

        given, lr = self._config.algorithm.optimizer, self._lr(self._version)
        first, second = given.betas
        params = tinker.AdamParams(
            learning_rate=lr,
            beta1=first,
            beta2=second,
            eps=_EPS,
            weight_decay=given.weight_decay,
            grad_clip_norm=self._config.trainer.grad_clip,
        )
        with naming("optim_step"):
            told = finished(self._policy.optim_step(params)).metrics or {}
        norms = {name: float(told[name]) for name in ("grad_norm",) if name in told}
        if not all(map(math.isfinite, norms.values())):
            raise not_finite("gradient norm", norms["grad_norm"], batch, step=step)
        self._version += 1
        return {"lr": lr} | norms


def _new_name(kind: str, version: int) -> str:
    """Return the name of a checkpoint; a resumed run may save the same version again."""
    return f"{kind}-{version}-{secrets.token_hex(4)}"
