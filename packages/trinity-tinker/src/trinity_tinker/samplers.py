"""Models that are sampled: base models, and those with a checkpoint's adapter added in."""

from __future__ import annotations

import copy
import json
import threading
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from trinity.engines.model import twin_of
from trinity.engines.transformers_engine import TransformersEngine
from trinity.trainer.lora import FOLDER, WEIGHTS_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    from trinity_tinker.base_model import BaseModel

__all__ = ["Sampler", "Samplers"]

_IN_PEFT = "base_model.model."
_SEED = 0  # of an engine; each request has a key of its own


class Sampler:
    """A model whose weights do not change, and the engine that samples from it.

    Args:
        module: the model; the engine works on its tensors.
        base: that it is, or was made of.
    """

    def __init__(self, module: PreTrainedModel, base: BaseModel) -> None:
        self.base = base
        self.module = module  # to score with, under the lock
        self.lock = threading.Lock()
        self.num_users = 0  # requests that are being answered
        self.engine = TransformersEngine(
            model_path=base.path,
            max_model_len=base.max_length,
            seed=_SEED,
            in_lockstep=False,
            module=module,
        )


class Samplers:
    """All models that are sampled; thread-safe. Each one that is given is released later.

    Args:
        max_merged: models with an adapter in memory; the one used longest ago makes room, once
            nothing is being sampled from it.
    """

    def __init__(self, *, max_merged: int) -> None:
        self._max_merged = max_merged
        self._bases: dict[str, Sampler] = {}
        # by folder, and when it was written; the last is the one used last
        self._merged: dict[tuple[str, float], Sampler] = {}
        self._lock = threading.Lock()

    def of_base(self, base: BaseModel) -> Sampler:
        """Return the sampler of a model without an adapter."""
        with self._lock:
            if base.name not in self._bases:
                self._bases[base.name] = Sampler(twin_of(base.module), base)
            self._bases[base.name].num_users += 1
            return self._bases[base.name]

    def of_checkpoint(self, folder: Path, base: BaseModel, *, made: float) -> Sampler:
        """Return the sampler of a checkpoint; its adapter is added to a copy of the model.

        ``made`` tells its files from those that were in its folder before.
        """
        key = str(folder), made
        with self._lock:
            found = self._merged.pop(key, None)
            if found is None:
                self._make_room()
                found = Sampler(merged(base.module, folder / FOLDER), base)
            found.num_users += 1
            self._merged[key] = found
            return found

    def release(self, sampler: Sampler) -> None:
        """Note that a request no longer needs a sampler."""
        with self._lock:
            sampler.num_users -= 1

    def forget(self, folder: Path) -> None:
        """Let go of a checkpoint whose files are other ones now, or are gone."""
        with self._lock:
            found = [self._merged.pop(key) for key in list(self._merged) if key[0] == str(folder)]
        for sampler in found:
            sampler.engine.close()

    def close(self) -> None:
        """End all engines."""
        with self._lock:
            for sampler in (*self._bases.values(), *self._merged.values()):
                sampler.engine.close()

    def _make_room(self) -> None:
        idle = [key for key, sampler in self._merged.items() if not sampler.num_users]
        for key in idle[: max(0, len(self._merged) + 1 - self._max_merged)]:
            self._merged.pop(key).engine.close()


@torch.no_grad()
def merged(base: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Return a copy of a model with the adapter of a folder of peft added to its weights.

    An output layer that shares its weights with the embedding gets weights of its own.
    """
    module = copy.deepcopy(base)
    config: dict[str, Any] = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    tensors = load_file(folder / WEIGHTS_FILE)
    for name, lower in tensors.items():
        path, found, _ = name.removeprefix(_IN_PEFT).partition(".lora_A.")
        if not found:
            continue
        upper = tensors[name.replace(".lora_A.", ".lora_B.")]
        layer: Any = module.get_submodule(path)
        if layer is module.get_output_embeddings():
            layer.weight = torch.nn.Parameter(layer.weight.clone(), requires_grad=False)
            module.config.tie_word_embeddings = False
        scale = config["lora_alpha"] / config["r"]
        delta = (upper @ lower * scale).to(layer.weight.device)
        layer.weight.copy_(layer.weight.float() + delta)
    return module
