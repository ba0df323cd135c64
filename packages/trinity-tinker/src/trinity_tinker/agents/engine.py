"""Sample all agents in one batch: each row computes with its own adapter, on one frozen model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from trinity.common.ports.trainer import digest_of
from trinity.common.ports.weights import LORA_A, LORA_B
from trinity.engines.adapted_weights import AdaptedWeights
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError

from trinity_tinker.agents.adapter_set import SEPARATOR
from trinity_tinker.multi_lora import Factors, MultiLoRA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from torch import Tensor
    from trinity.common.ports.trainer import WeightDigest
    from trinity.engines.forward import RowAdapters

__all__ = ["MultiLoRAEngine"]


class MultiLoRAEngine(TransformersEngine):
    """The embedded engine, whose requests name an adapter of the run.

    An adapter changes nothing before weights are loaded. Its arguments are those of the engine
    ``transformers``.
    """

    _names: Sequence[str] = ()

    def _put_adapters(self, names: Sequence[str]) -> RowAdapters:
        self._names, adapters = tuple(names), MultiLoRA()
        self._module = adapters.put_into(self._module)
        self._weights = _AdapterWeights(adapters, names=names, device=self._module.device)
        return adapters

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        """Refuse with several adapters: a score names none."""
        if self._names:
            raise ModelError(
                "model.logprobs: with several adapters in model.lora_configs the engine scores "
                "no given tokens. Ask a model of explorer.auxiliary_models."
            )
        return super().score(token_ids, temperature)


class _AdapterWeights(AdaptedWeights):
    """Takes the adapters of a snapshot; the model stays as it is."""

    def __init__(self, rows: MultiLoRA, *, names: Sequence[str], device: torch.device) -> None:
        self._rows, self._names, self._device = rows, names, device
        self._digest: WeightDigest = {}
        for name in names:
            rows.add(name, {})

    def digest(self) -> WeightDigest:
        """Return the digest of what was loaded last."""
        return self._digest

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace all adapters.

        Raises:
            ModelError: the snapshot is of other adapters, or of another model.
        """
        tensors = dict(tensors)
        loaded: dict[str, Factors] = {name: {} for name in self._names}
        for key in tensors:
            if not key.endswith(LORA_A):
                continue
            name, _, weight = key.removesuffix(LORA_A).partition(SEPARATOR)
            pair = (tensors[key], tensors[key.removesuffix(LORA_A) + LORA_B])
            lower, upper = (one.detach().to(self._device).float().T.clone() for one in pair)
            if name in loaded:
                loaded[name][weight.removesuffix(".weight")] = lower, upper
        if sum(map(len, loaded.values())) * 2 != len(tensors) or not all(loaded.values()):
            raise ModelError(
                f"the snapshot holds other weights than the adapters {', '.join(self._names)}. "
                f"Trainer and engine need the same model.lora_configs."
            )
        for name, factors in loaded.items():
            self._rows.add(name, factors)
        self._digest = digest_of(tensors)
