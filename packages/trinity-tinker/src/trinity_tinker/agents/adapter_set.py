"""The adapters of a run's agents, beside one frozen model; a pass computes with one of them.

actor/
    adapter/NAME/    of each agent, as peft reads it
    huggingface/     configuration and tokenizer of the frozen model, without weights
    trainer.pt       one AdamW state for all
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from trinity.errors import CheckpointError, NotSupportedYetError
from trinity.trainer.checkpoint import Checkpointer
from trinity.trainer.lora import FOLDER, Adapters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor, nn
    from transformers import PreTrainedModel
    from trinity.common.config.model import LoRAConfig

__all__ = ["SEPARATOR", "AdapterCheckpointer", "AdapterSet"]

SEPARATOR = "/"  # between adapter and weight in the names of a snapshot


class AdapterSet:
    """Adapters by name; has what a trainer asks of the only ones.

    Each begins as in a run with it alone, to the last bit. They stand in the order of their names,
    so a resumed run finds the optimizer's state of each, in whatever order the entries are then.

    Args:
        module: the frozen model, into which they are put.
        configs: the entries of ``model.lora_configs``, each with a name.
    """

    def __init__(self, module: PreTrainedModel, configs: Sequence[LoRAConfig]) -> None:
        self._by_name: dict[str, Adapters] = {}
        self._active = ""
        places = sorted(range(len(configs)), key=lambda number: configs[number].name or "")
        for number in places:
            config = configs[number]
            inner = f"agent{number:09d}"  # no name is part of another: peft searches for them
            with torch.random.fork_rng(enabled=number != places[-1]):  # each begins where it began
                adapters = Adapters(module, config, name=inner, number=number)
            self._by_name[config.name or ""] = adapters

    @property
    def names(self) -> list[str]:
        """Return the names in their order."""
        return list(self._by_name)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained."""
        return [one for adapters in self._by_name.values() for one in adapters.parameters]

    def parameters_of(self, name: str) -> list[nn.Parameter]:
        """Return what is trained for one agent."""
        return self._by_name[name].parameters

    def activate(self, name: str) -> None:
        """Compute with these, until others are named."""
        if name != self._active:
            self._by_name[name].activate()
            self._active = name

    def factors(self) -> dict[str, Tensor]:
        """Return all, as ``WeightSnapshot`` names adapters, with their own name in front.

        Raises:
            NotSupportedYetError: one is no product of two factors.
        """
        tensors: dict[str, Tensor] = {}
        for name, adapters in self._by_name.items():
            own = adapters.factors()
            if not own:
                raise NotSupportedYetError(
                    f"model.lora_configs: the adapter {name!r} is of layers other than nn.Linear, "
                    f"which several adapters cannot be. Leave them out by target_modules."
                )
            tensors |= {f"{name}{SEPARATOR}{weight}": one for weight, one in own.items()}
        return tensors

    def save(self, directory: Path) -> None:
        """Write each into a folder of its name."""
        for name, adapters in self._by_name.items():
            adapters.save(directory, folder_name=f"{FOLDER}/{name}")

    def load(self, directory: Path) -> None:
        """Go on from what :meth:`save` wrote.

        Raises:
            CheckpointError: there are others, or they are of other layers.
        """
        saved = sorted(path.name for path in (directory / FOLDER).glob("*/"))
        if saved != sorted(self._by_name):
            raise CheckpointError(
                f"checkpoint {str(directory)!r} holds the adapters {', '.join(saved) or 'none'}, "
                f"and model.lora_configs names {', '.join(self._by_name)}. Set it as the run "
                f"began with."
            )
        for name, adapters in self._by_name.items():
            adapters.load(directory, folder_name=f"{FOLDER}/{name}")


class AdapterCheckpointer(Checkpointer):
    """Writes adapters alone: merged, there would be a model for each of them."""

    def save_hf(self, directory: Path, *, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Write configuration and tokenizer of the model; with one adapter all of it, merged."""
        if not isinstance(self._adapters, AdapterSet):
            super().save_hf(directory, tensors=tensors)
            return
        from transformers import AutoTokenizer

        self._model.config.save_pretrained(directory)
        self._model.generation_config.save_pretrained(directory)
        tokenizer = AutoTokenizer.from_pretrained(
            self._model_path, trust_remote_code=self._config.trust_remote_code
        )
        tokenizer.save_pretrained(directory)
