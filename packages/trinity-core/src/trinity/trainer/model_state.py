"""Write the model that is trained with its optimizer, and go on from what was written.

    whole      the first rank writes all tensors, as one process would
    in parts   each rank writes what it holds (``shards.py``), where that is large

The Hugging Face folder is there in both cases, and any number of ranks reads either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity.trainer import checkpoint, shards
from trinity.trainer.scattering import scatter_weights
from trinity.trainer.spreading import load_optimizer, optimizer_state, whole_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

    from trinity.common.config import Config
    from trinity.trainer.lora import Adapters
    from trinity.trainer.ranks import Ranks


class ModelState:
    """The weights and the optimizer's state of a trainer.

    Args:
        config: a resolved configuration.
        model_path: of the tokenizer.
        model: that is trained.
        adapters: beside it, which are trained instead; None: there are none.
        ranks: the processes that train it.

    Raises:
        ConfigError: torch cannot write what ranks hold.
    """

    def __init__(
        self,
        config: Config,
        *,
        model_path: str,
        model: PreTrainedModel,
        adapters: Adapters | None,
        ranks: Ranks,
    ) -> None:
        self._config = config
        self._model_path = model_path
        self._model = model
        self._adapters = adapters
        self._ranks = ranks
        self._is_parted = (
            ranks.shares_weights and shards.num_bytes(model) > config.trainer.sharded_above_gb * 1e9
        )
        if self._is_parted:
            shards.refuse_older_torch()

    def whole_weights(self) -> dict[str, Tensor]:
        """Return all weights, at the first rank; the others give their parts."""
        return whole_tensors(self._model.named_parameters(), is_kept=self._ranks.rank == 0)

    def save(
        self,
        directory: Path,
        *,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Any],
        beside: Callable[[], None],
    ) -> None:
        """Write what :meth:`load` needs; the first of several processes does, or all their parts.

        Args:
            directory: where to.
            optimizer: of the model.
            others: what else the trainer wants to know, of plain values.
            beside: writes what is trained beside the model.
        """
        state: dict[str, Any] = {**others, "optimizer": optimizer.state_dict(), "is_parted": False}
        tensors = None
        if self._ranks.shares_weights:
            state |= self._given(directory, optimizer)
            tensors = self.whole_weights()

        def write() -> None:
            self.save_hf(directory / checkpoint.MODEL_FOLDER, tensors=tensors)
            checkpoint.save_state(directory, state | {"random": checkpoint.random_state()})
            if self._adapters is not None:
                self._adapters.save(directory)
            beside()

        self._ranks.first(write)

    def load(self, directory: Path, *, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Go on from what :meth:`save` wrote; return it (Any: plain values).

        Raises:
            CheckpointError: it cannot be read, or is of another model.
        """
        state = checkpoint.load_state(directory, is_mapped=self._ranks.shares_weights)
        if state.get("is_parted"):
            tensors, moments = shards.with_room(self._model, optimizer, state["optimizer"])
            shards.read_parts(tensors, directory)
            optimizer.load_state_dict(moments)
        else:
            self._load_whole(directory)
            load_optimizer(optimizer, state["optimizer"])
        checkpoint.restore_random_state(state["random"])
        return state

    def save_hf(self, directory: Path, *, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Write the model and its tokenizer in the Hugging Face format.

        Args:
            directory: where to.
            tensors: its weights by name; None: those of the module, or with adapters in them.
        """
        if tensors is None and self._adapters is not None:
            tensors = self._adapters.merged()
        checkpoint.save_hf(
            self._model,
            directory,
            tensors=tensors,
            tokenizer_path=self._model_path,
            trust_remote_code=self._config.model.trust_remote_code,
        )

    def _given(self, directory: Path, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return the optimizer's state, whose parts all ranks give, or have written by now."""
        rank, size = self._ranks.rank, self._ranks.size
        if not self._is_parted:
            return {"optimizer": optimizer_state(optimizer.state_dict(), is_kept=rank == 0)}
        tensors, rest = shards.parted(self._model, optimizer)
        self._ranks.each(lambda: shards.write_part(tensors, directory, rank=rank, size=size))
        self._ranks.first(lambda: shards.refuse_missing(directory, size=size))
        return {"optimizer": rest, "is_parted": True}

    def _load_whole(self, directory: Path) -> None:
        if self._adapters is not None:
            self._adapters.load(directory)  # what they stand beside never changes
            return
        folder, found = directory / checkpoint.MODEL_FOLDER, []

        def read() -> None:
            may_run_code = self._config.model.trust_remote_code
            found.append(
                checkpoint.saved_weights(self._model, folder, trust_remote_code=may_run_code)
            )

        if self._ranks.shares_weights:
            self._ranks.first(read)
            scatter_weights(self._model, found[0] if found else None)
        else:
            read()
            checkpoint.load_module(self._model, found[0], directory=folder)
