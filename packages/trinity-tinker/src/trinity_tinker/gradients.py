"""Train adapters of one frozen model; passes and optimizer steps are asked for one by one.

A run has an adapter, the gradients since its last step, and an AdamW state. Runs take turns; what
one does changes no bit of another.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from trinity.errors import CheckpointError, ConfigError, DataError
from trinity.trainer.lora import Adapters
from trinity.trainer.model_loading import load_policy
from trinity.trainer.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedModel
    from trinity.common.config.model import LoRAConfig
    from trinity.trainer.microbatch import ModelInputs

OPTIMIZER_FILE = "optimizer.pt"


def policy_of(module: PreTrainedModel) -> Policy:
    """Return what gives hidden states and logits of a model one after the other, as it is."""
    return Policy(module, precision="float32")  # no autocast, whatever its weights are


class GradientTrainer:
    """Adds up gradients of losses on log-probabilities; for one thread at a time.

    Args:
        model_path: folder or Hugging Face id of the frozen model.
        precision: that it computes in, ``float32`` or ``bfloat16``; adapters are float32.

    Raises:
        ModelError: the model cannot be loaded.
    """

    def __init__(self, model_path: str, *, precision: str = "float32") -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._policy = load_policy(model_path, device=device, precision=precision, is_trained=False)
        self._runs: dict[str, tuple[Adapters, torch.optim.AdamW]] = {}
        self._num_begun = 0

    @property
    def module(self) -> PreTrainedModel:
        """Return the model; adapters are put into it."""
        return self._policy.module

    def begin(self, run: str, adapter: LoRAConfig, *, seed: int) -> None:
        """Give a run an adapter that changes nothing yet; the seed is of its random half.

        Raises:
            ConfigError: peft is not installed, or the adapter fits no layer.
        """
        self._num_begun += 1
        name = f"run{self._num_begun:09d}"  # no name is part of another: peft searches for them
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            adapters = Adapters(self.module, adapter, name=name, may_adapt_head=True)
        self._runs[run] = adapters, torch.optim.AdamW(adapters.parameters)
        self._policy = Policy(self.module, precision=self._policy.precision)  # with its new head

    def backward(
        self,
        run: str,
        parts: Sequence[ModelInputs],
        loss: Callable[[int, Tensor], Tensor],
        *,
        forward_only: bool = False,
    ) -> tuple[list[Tensor], float]:
        """Add the gradient of the summed loss of all micro-batches to those of the run.

        Args:
            run: that began.
            parts: the micro-batches.
            loss: number of a micro-batch and its log-probabilities ``[B, R]``, to a scalar.
            forward_only: compute no gradient.

        Returns:
            The log-probabilities of each micro-batch, on the CPU, and the sum of the losses.

        Raises:
            DataError: the loss, or the norm of all gradients, is not finite; the run is as before.
        """
        adapters, _ = self._runs[run]
        adapters.activate()
        before = [parameter.grad for parameter in adapters.parameters]
        for parameter in adapters.parameters:
            parameter.grad = None
        logprobs, total = [], 0.0
        with torch.set_grad_enabled(not forward_only):
            for number, part in enumerate(parts):
                logprob_BR = self._policy.score(part).logprob
                share = loss(number, logprob_BR)
                if not forward_only:
                    share.backward()  # type: ignore[no-untyped-call, unused-ignore]
                total += float(share.detach())
                logprobs.append(logprob_BR.detach().float().cpu())
        for parameter, old in zip(adapters.parameters, before, strict=True):
            new = parameter.grad
            parameter.grad = old if new is None else new if old is None else old + new
        norm = _norm(adapters)  # squares may overflow where no gradient does
        if not (math.isfinite(total) and norm.isfinite()):
            for parameter, old in zip(adapters.parameters, before, strict=True):
                parameter.grad = old
            raise DataError(
                f"the loss is {total}, the norm of the gradients {float(norm)}; nothing changed"
            )
        return logprobs, total

    def step(self, run: str, *, max_norm: float = 0.0, **adamw: Any) -> float:
        """Make a step with the run's gradients, and drop them; return their norm.

        Args:
            run: that began.
            max_norm: of the gradients, which are clipped to it; 0: they are not.
            adamw: settings of torch's AdamW for this step (Any: of each one's type).

        Raises:
            ConfigError: there are no gradients.
            DataError: a weight is not finite any more; :meth:`load` or :meth:`end` the run.
        """
        adapters, optimizer = self._runs[run]
        if all(parameter.grad is None for parameter in adapters.parameters):
            raise ConfigError("a step needs gradients; there are none since the last one")
        norm = _norm(adapters)
        torch.nn.utils.clip_grads_with_norm_(adapters.parameters, max_norm or math.inf, norm)
        for group in optimizer.param_groups:
            group |= adamw  # noqa: PLW2901
        optimizer.step()
        if not all(bool(parameter.isfinite().all()) for parameter in adapters.parameters):
            raise DataError(
                "a weight would not be a finite number after this step, so it is not made; its "
                "gradients are still there. Use a smaller learning_rate, or an eps above 0"
            )
        optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def save(self, run: str, folder: Path, *, with_optimizer: bool = True) -> None:
        """Write the adapter as peft reads it, and the optimizer's state; not the gradients."""
        adapters, optimizer = self._runs[run]
        adapters.save(folder)
        if with_optimizer:
            torch.save(optimizer.state_dict(), folder / OPTIMIZER_FILE)

    def load(self, run: str, folder: Path, *, with_optimizer: bool) -> None:
        """Continue from what :meth:`save` wrote, without gradients; else with a new optimizer.

        Raises:
            CheckpointError: it is of other layers, or has no optimizer.
        """
        adapters, optimizer = self._runs[run]
        adapters.load(folder)
        optimizer.zero_grad(set_to_none=True)
        optimizer = torch.optim.AdamW(adapters.parameters)
        if with_optimizer:
            if not (folder / OPTIMIZER_FILE).is_file():
                raise CheckpointError(f"{folder} has no state of an optimizer")
            state = torch.load(folder / OPTIMIZER_FILE, weights_only=True, map_location="cpu")
            optimizer.load_state_dict(state)  # to where its parameters are
        self._runs[run] = adapters, optimizer

    def end(self, run: str) -> None:
        """Take the run's adapter out of the model."""
        self._runs.pop(run)[0].remove()


def _norm(adapters: Adapters) -> Tensor:
    """Return the norm of all gradients, a scalar; 0 where there are none."""
    gradients = [one.grad for one in adapters.parameters if one.grad is not None]
    return torch.nn.utils.get_total_norm(gradients)
