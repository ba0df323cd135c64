"""Train a model that says what a token is worth.

    token t is predicted from the state of the token before it;
    value(t) = head(that state): what the rest of the response will bring, t itself included

B rows of a batch or micro-batch   R response   N scored tokens   D width
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trinity.algorithm.ops import normalizer_of_mode, weight_of_part
from trinity.algorithm.value_loss import clipped_value_loss
from trinity.errors import DataError
from trinity.trainer import checkpoint
from trinity.trainer.algorithm_parts import not_finite
from trinity.trainer.microbatch import pad_to_width, select_inputs
from trinity.trainer.optimizer import apply_gradients, make_lr_schedule, make_optimizer, states_here
from trinity.trainer.prefix_tree import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from trinity.common.batch import ExperienceBatch
    from trinity.common.config.trainer import CriticConfig
    from trinity.common.metrics import Metrics
    from trinity.trainer.microbatch import ModelInputs
    from trinity.trainer.offload import Offload
    from trinity.trainer.policy import Policy
    from trinity.trainer.ranks import Ranks
    from trinity.trainer.scorer import Scorer

FOLDER = "critic"


class Critic:
    """A language model's body with a head of one number, and its own optimizer.

    The head starts at 0, so that a critic that knows nothing says nothing.

    Args:
        config: ``trainer.critic``.
        body: the model whose states the head reads.
        scorer: cuts batches.
        total_steps: steps of the run, for the learning rate.
        ranks: that share each batch.
        offload: of the optimizer's states.
    """

    def __init__(
        self,
        config: CriticConfig,
        *,
        body: Policy,
        scorer: Scorer,
        total_steps: int,
        ranks: Ranks,
        offload: Offload | None,
    ) -> None:
        self._ranks = ranks
        self._offload = offload
        self._config = config
        self._body = body
        body.drop_head()  # nothing is computed with it
        self._scorer = scorer
        width = body.module.config.get_text_config(decoder=True).hidden_size
        self._head = nn.Linear(width, 1, device=body.device)
        for parameter in self._head.parameters():
            nn.init.zeros_(parameter)
        self.module = nn.ModuleDict({"body": body.module.base_model, "head": self._head})
        self._optimizer = make_optimizer(self.module.parameters(), config.optimizer)
        self._lr = make_lr_schedule(config.optimizer, total_steps=total_steps)
        self._num_steps = 0

    @torch.no_grad()
    def values(self, batch: ExperienceBatch) -> Tensor:
        """Return the value ``[B, R]`` of each token, 0 where masked, on the CPU."""
        values_BR = torch.zeros(batch["action_mask"].shape)
        for packs in self._ranks.micro_batches(self._scorer.plan(batch, policy=self._body)):
            _, inputs = select_inputs(batch, packs)
            values_BR[rows_of(packs)] = self._values(inputs).cpu()
        return self._ranks.all_reduce(values_BR)

    def train_step(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        """Return the metrics of one optimizer step towards the batch's returns.

        Raises:
            DataError: the advantage function gave no returns.
            TrinityError: loss or gradient is not a finite number; the weights are as before.
        """
        if "returns" not in batch:
            raise DataError(
                "the critic learns returns, and the advantage function gave none. "
                "Use algorithm.advantage_fn: ppo."
            )
        with self._body.recomputing():
            metrics = self._accumulate(batch, step=step)
        metrics |= self._update(batch, step=step)
        return metrics | _quality(batch)

    def save(self, directory: Path) -> None:
        """Write weights, optimizer and the number of steps into a folder of its own."""
        state = {
            "weights": {name: p.detach() for name, p in self.module.named_parameters()},
            "optimizer": self._optimizer.state_dict(),
            "num_steps": self._num_steps,
        }
        (directory / FOLDER).mkdir(parents=True, exist_ok=True)
        checkpoint.save_state(directory / FOLDER, state)

    def load(self, directory: Path) -> None:
        """Go on from what :meth:`save` wrote.

        Raises:
            CheckpointError: it cannot be read, or is of another model.
        """
        state = checkpoint.load_state(directory / FOLDER)
        for name, _ in self.module.named_buffers():  # which older versions wrote, too
            state["weights"].pop(name, None)
        checkpoint.load_module(self.module, state["weights"], directory=directory / FOLDER)
        with states_here(self._optimizer, self._offload):
            self._optimizer.load_state_dict(state["optimizer"])
        self._num_steps = state["num_steps"]

    def _accumulate(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        self._optimizer.zero_grad(set_to_none=True)
        with self._ranks.summing() as metrics:
            metrics.own = self._backward(batch, step=step)
        self._ranks.all_reduce_gradients(self.module.parameters())
        return metrics.total

    def _backward(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        mode = self._config.loss_agg_mode
        totals: Metrics = {}
        for packs in self._ranks.micro_batches(self._scorer.plan(batch, policy=self._body)):
            part, inputs = select_inputs(batch, packs)
            device = self._body.device
            loss, numbers = clipped_value_loss(
                self._values(inputs),
                old_values_BR=part["values"].to(device),
                returns_BR=part["returns"].to(device),
                mask_BR=part["action_mask"].to(device),
                clip_range=self._config.cliprange_value,
                loss_agg_mode=mode,
            )
            masks = part["action_mask"], batch["action_mask"]
            weight = weight_of_part(normalizer_of_mode(mode), *masks)
            numbers["vf_loss"] = loss.detach().item()
            if not math.isfinite(numbers["vf_loss"]):
                raise not_finite("critic's loss", numbers["vf_loss"], part, step=step)
            (loss * weight).backward()
            weights = {"vf_loss": weight, "vf_clipfrac": weight_of_part("tokens", *masks)}
            for name, share in weights.items():
                totals[name] = totals.get(name, 0.0) + numbers[name] * share
        return totals

    def _update(self, batch: ExperienceBatch, *, step: int) -> Metrics:
        lr, limit = self._lr(self._num_steps), self._config.grad_clip
        norm = apply_gradients(self._optimizer, max_norm=limit, lr=lr, offload=self._offload)
        if not math.isfinite(norm):
            raise not_finite("critic's gradient norm", norm, batch, step=step)
        self._num_steps += 1
        return {"grad_norm": norm, "lr": lr}

    def _values(self, inputs: ModelInputs) -> Tensor:
        states_ND = self._body.states(inputs)
        values_N: Tensor = self._head(states_ND.to(self._head.weight.dtype)).squeeze(-1)
        return pad_to_width(values_N, inputs.to(self._body.device))


def _quality(batch: ExperienceBatch) -> Metrics:
    """Return the mean value and return, and how much of the returns' variance is explained."""
    mask_BR = batch["action_mask"].bool()
    values_N, returns_N = batch["values"][mask_BR].double(), batch["returns"][mask_BR].double()
    variance = returns_N.var(unbiased=False).item()
    unexplained = (returns_N - values_N).var(unbiased=False).item()
    return {
        "values/mean": values_N.mean().item(),
        "returns/mean": returns_N.mean().item(),
        "vf_explained_var": 1.0 - unexplained / variance if variance > 0 else 0.0,
    }
