"""Sample all agents in one batch: each row computes with its own adapter, on one frozen model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from trinity.common.ports.trainer import digest_of
from trinity.common.ports.weights import LORA_A, LORA_B
from trinity.engines.lockstep import PATIENCE_S
from trinity.engines.model import load_model, pick_device
from trinity.engines.transformers_engine import TransformersEngine
from trinity.errors import ModelError

from trinity_tinker.agents.adapter_set import SEPARATOR
from trinity_tinker.multi_lora import Factors, MultiLoRA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from concurrent.futures import Future

    from torch import Tensor
    from trinity.common.ports.trainer import WeightDigest

__all__ = ["MultiLoRAEngine"]


class MultiLoRAEngine(TransformersEngine):
    """The embedded engine, whose requests name an adapter of the run.

    Args:
        model_path: as for the engine ``transformers``, as all that follow.
        max_model_len: see there.
        dtype: see there.
        seed: see there.
        device: see there.
        num_threads: see there.
        max_batch_rows: see there.
        max_batch_tokens: see there.
        trust_remote_code: see there.
        gate_patience_s: see there.
        in_lockstep: see there.
        cpu_kernels: see there.
        names: of the adapters, which change nothing before weights are loaded.

    Raises:
        ModelError: the model cannot be loaded.
    """

    def __init__(  # noqa: PLR0913 -- the options of a component
        self,
        *,
        model_path: str,
        max_model_len: int,
        dtype: str = "float32",
        seed: int = 0,
        device: str | None = None,
        num_threads: int | None = None,
        max_batch_rows: int = 256,
        max_batch_tokens: int = 131_072,
        trust_remote_code: bool = False,
        gate_patience_s: float = PATIENCE_S,
        in_lockstep: bool = True,
        cpu_kernels: bool = True,
        names: Sequence[str] = (),
    ) -> None:
        place = pick_device(device)
        module = load_model(
            model_path, dtype=dtype, device=place, trust_remote_code=trust_remote_code
        )
        self._names, adapters = tuple(names), MultiLoRA()
        super().__init__(
            model_path=model_path,
            max_model_len=max_model_len,
            dtype=dtype,
            seed=seed,
            num_threads=num_threads,
            max_batch_rows=max_batch_rows,
            max_batch_tokens=max_batch_tokens,
            trust_remote_code=trust_remote_code,
            gate_patience_s=gate_patience_s,
            in_lockstep=in_lockstep,
            cpu_kernels=cpu_kernels,
            module=adapters.put_into(module) if names else module,
            adapters=adapters,
        )
        self._is_shared = False  # nobody else has the module
        if names:
            self._weights = _AdapterWeights(adapters, names=self._names, device=place)

    def score(self, token_ids: Sequence[int], temperature: float = 1.0) -> Future[list[float]]:
        """Refuse with several adapters: a score names none."""
        if self._names:
            raise ModelError(
                "model.logprobs: with several adapters in model.lora_configs the engine scores "
                "no given tokens. Ask a model of explorer.auxiliary_models."
            )
        return super().score(token_ids, temperature)


class _AdapterWeights:
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
