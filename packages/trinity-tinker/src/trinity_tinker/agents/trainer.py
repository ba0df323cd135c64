"""Train the adapter of each agent on what that agent said.

    experiences -> batch -> micro-batches of one adapter each -> gradients -> one AdamW step

An adapter without rows has no gradients, so AdamW leaves it alone: no momentum, no weight decay,
and its own count of steps stays.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from trinity.errors import ConfigError, DataError, TrinityError, unknown_name
from trinity.trainer.microbatch import Plan
from trinity.trainer.model_loading import ModelLoader
from trinity.trainer.policy import PLAIN, Policy
from trinity.trainer.scorer import Scorer
from trinity.trainer.torch_trainer import TorchTrainer

from trinity_tinker.agents.adapter_set import AdapterCheckpointer, AdapterSet
from trinity_tinker.agents.refusals import problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor
    from trinity.common.batch import ExperienceBatch
    from trinity.common.config import Config
    from trinity.common.config.problem import Problem
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.trainer.lora import Adapters
    from trinity.trainer.microbatch import ModelInputs
    from trinity.trainer.policy import TokenScores, Wanted

__all__ = ["MultiLoRATrainer"]


class AdapterPolicy(Policy):
    """A model that scores rows with their own adapter."""

    adapters: AdapterSet

    @classmethod
    def of(cls, policy: Policy, adapters: AdapterSet) -> AdapterPolicy:
        """Return the same policy, with adapters that were put into its model."""
        made = cls(policy.module, precision=policy.precision)
        made.adapters = adapters
        return made

    def score(self, inputs: ModelInputs, wanted: Wanted = PLAIN) -> TokenScores:
        if inputs.adapter:
            self.adapters.activate(inputs.adapter)
        return super().score(inputs, wanted)


class AdapterLoader(ModelLoader):
    """Loads the frozen model, with an adapter for each agent."""

    def trained(self) -> tuple[Policy, Adapters | None]:
        configs = self._config.model.lora_configs or []
        if len(configs) < 2:
            return super().trained()
        policy = self.load(self._model_path, is_trained=False)
        adapters = AdapterSet(policy.module, configs)
        adapters.activate(adapters.names[0])  # only these are trained: the others have no gradient
        policy = self._with_checkpointing(policy, is_trained=True)
        self._try_prefix_sharing(policy)
        for parameter in adapters.parameters:
            parameter.requires_grad_(requires_grad=True)
        own = AdapterPolicy.of(policy, adapters)
        return own, cast("Adapters", adapters)  # it has what is asked of them


class AdapterScorer(Scorer):
    """Cuts batches so that each micro-batch is of one adapter, and shares prefixes within it."""

    def plan(self, batch: ExperienceBatch, *, policy: Policy | None = None) -> Plan:
        rows_of: dict[str, list[int]] = {}
        for row, experience in enumerate(batch.experiences):
            rows_of.setdefault(experience.info.get("adapter", ""), []).append(row)
        if len(rows_of) == 1:
            return super().plan(batch, policy=policy)
        parts = []
        for rows in rows_of.values():
            for packs in super().plan(batch.select(rows), policy=policy):
                placed = [replace(p, rows=tuple(rows[row] for row in p.rows)) for p in packs]
                parts.append(placed)
        return Plan([parts])


def _is_ray_worker() -> bool:
    """Return whether Ray started this process; a process that only joined it may train."""
    ray: Any = sys.modules.get("ray")  # Any: it is half typed
    if ray is None or not ray.is_initialized():
        return False
    return bool(ray.get_runtime_context().worker.mode == ray.WORKER_MODE)


class MultiLoRATrainer(TorchTrainer):
    """Makes one optimizer step of each batch, on the adapters of the agents that it has rows of.

    Loss and clipping are those of the whole batch, as they are with one adapter.
    """

    loader_class: ClassVar[type[ModelLoader]] = AdapterLoader
    scorer_class: ClassVar[type[Scorer]] = AdapterScorer
    checkpointer_class = AdapterCheckpointer

    def __init__(self, config: Config, *, model_path: str, total_steps: int, seed: int) -> None:
        if _is_ray_worker():
            raise ConfigError(
                f"{config.source.place('model.lora_configs')}: several adapters are trained and "
                f"sampled in one process, not over Ray. Start it with: trinity run --local."
            )
        super().__init__(config, model_path=model_path, total_steps=total_steps, seed=seed)
        self._told: Metrics = {}

    @staticmethod
    def preflight(config: Config) -> list[Problem]:
        """Return what of a configuration does not go with several adapters."""
        return list(problems(config))

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step, with those of each adapter.

        Raises:
            DataError: a row names no adapter of this run.
        """
        if not isinstance(self._adapters, AdapterSet):
            return super().train_step(experiences, step=step)
        rows_of = self._rows_of(experiences, self._adapters.names)
        self._told = {}
        metrics = super().train_step(experiences, step=step) | self._told
        for name, rows in rows_of.items():
            metrics[f"adapter/{name}/num_samples"] = float(len(rows))
            rewards = [row.reward for row in rows if row.reward is not None]
            if rewards:
                metrics[f"adapter/{name}/reward"] = fmean(rewards)
        return metrics

    @staticmethod
    def _rows_of(
        experiences: Iterable[Experience], names: Sequence[str]
    ) -> Mapping[str, list[Experience]]:
        found: dict[str, list[Experience]] = {name: [] for name in names}
        for experience in experiences:
            name = experience.info.get("adapter", "")
            if name not in found:
                raise DataError(
                    f"experience {experience.eid} cannot be trained: "
                    f"{unknown_name('adapter', name, names)} Let the workflow ask by "
                    f"self.model.adapter(NAME), or write the name as info['adapter']."
                )
            found[name].append(experience)
        return found

    def _weights(self, *, copy: bool) -> Mapping[str, Tensor]:
        if not isinstance(self._adapters, AdapterSet):
            return super()._weights(copy=copy)
        tensors = self._adapters.factors()
        return {name: one.clone() for name, one in tensors.items()} if copy else tensors

    def _backward(self, batch: ExperienceBatch, plan: Plan, *, step: int) -> Metrics | TrinityError:
        """Return the metrics of all adapters' passes, made one adapter after the other."""
        parts: dict[str, list[Any]] = {}  # Any: packs
        for packs in plan:
            first = batch.experiences[packs[0].rows[0]]
            parts.setdefault(first.info.get("adapter", ""), []).append(packs)
        totals: Metrics = {}
        failure: TrinityError | None = None
        for name, own in parts.items():
            found = super()._backward(batch, Plan([own]), step=step)
            if isinstance(found, TrinityError):
                failure = failure or found
                continue
            if name:
                self._told[f"adapter/{name}/loss"] = found["loss"]
            for key, value in found.items():
                totals[key] = totals.get(key, 0.0) + value
        return failure or totals

    def _update(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        if isinstance(self._adapters, AdapterSet):
            for name in self._adapters.names:
                gradients = [one.grad for one in self._adapters.parameters_of(name)]
                given = [one for one in gradients if one is not None]
                if given:
                    norm = torch.nn.utils.get_total_norm(given)
                    self._told[f"adapter/{name}/grad_norm"] = float(norm)
        return super()._update(batch, step=step)
