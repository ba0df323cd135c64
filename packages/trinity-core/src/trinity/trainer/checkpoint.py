"""Write and read what a trainer needs to go on.

directory/
    huggingface/     the model and its tokenizer, as any tool reads them
    trainer.pt       optimizer, random state, version
    shards/          instead of tensors in trainer.pt: what each rank holds, where that is large

Any number of ranks reads either.
"""

from __future__ import annotations

import pickle
import zipfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trinity.common.ports.weights import TensorStream
from trinity.errors import CheckpointError
from trinity.trainer import dcp_checkpoint, dtensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from transformers import PreTrainedModel

    from trinity.common.config import Config
    from trinity.trainer.lora import Adapters
    from trinity.trainer.ranks import Ranks

MODEL_FOLDER = "huggingface"
STATE_FILE = "trainer.pt"


class Checkpointer:
    """Saves and loads the model of a trainer with its optimizer, on all ranks at once.

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
        self._config = config.model
        self._model_path = model_path
        self._model = model
        self._adapters = adapters
        self._ranks = ranks
        limit = config.trainer.sharded_above_gb * 1e9
        is_large = ranks.is_sharded and dcp_checkpoint.num_bytes(model) > limit
        self._is_split = is_large and adapters is None  # whose states are small
        if self._is_split:
            dcp_checkpoint.check_torch()

    def full_weights(self) -> dict[str, Tensor]:
        """Return all weights, tied ones once, on the first rank; the others give their shards.

        With adapters in them, if there are any; then each rank that has whole weights gets them.
        """
        is_kept = self._ranks.rank == 0
        if self._adapters is not None:
            is_kept |= not self._ranks.is_sharded
            stream = self._adapters.stream(is_kept=is_kept)
            return {name: tensor for name, tensor in stream.items() if is_kept}
        return dtensor.gather_state(dict(self._model.named_parameters()), is_kept=is_kept)

    def save(
        self,
        directory: Path,
        *,
        optimizer: torch.optim.Optimizer,
        others: Mapping[str, Any],
        beside: Callable[[], None],
    ) -> None:
        """Write what :meth:`load` needs; the first rank does, or each of them its shards.

        Args:
            directory: where to.
            optimizer: of the model.
            others: what else the trainer wants to know, of plain values.
            beside: writes what is trained beside the model.
        """
        state: dict[str, Any] = {**others, "optimizer": optimizer.state_dict(), "is_parted": False}
        tensors = None
        if self._ranks.is_sharded:
            state |= self._gathered(directory, optimizer)
            tensors = self.full_weights()

        def write() -> None:
            self.save_hf(directory / MODEL_FOLDER, tensors=tensors)
            save_state(directory, state | {"random": random_state()})
            if self._adapters is not None:
                self._adapters.save(directory)
            beside()

        self._ranks.on_rank_zero(write)

    def _gathered(self, directory: Path, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Return the optimizer's state on rank 0; its tensors, or where each rank writes them."""
        rank, size = self._ranks.rank, self._ranks.num_shards
        if not self._is_split:
            state = optimizer.state_dict()
            full = dtensor.gather_state(state["state"], is_kept=rank == 0)
            return {"optimizer": {**state, "state": full}}
        tensors, rest = dcp_checkpoint.split_state(self._model, optimizer)

        def write_own() -> None:
            if rank < size:  # the others have copies
                dcp_checkpoint.save_shard(tensors, directory, rank=rank, size=size)

        self._ranks.on_each_rank(write_own)
        self._ranks.on_rank_zero(lambda: dcp_checkpoint.check_all_written(directory, size=size))
        return {"optimizer": rest, "is_parted": True}

    def save_hf(self, directory: Path, *, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Write the model and its tokenizer in the Hugging Face format.

        Args:
            directory: where to.
            tensors: its weights by name, tied ones once; None: those of the module, or with
                adapters in them.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

        module = self._model
        if tensors is None and self._adapters is not None:
            tensors = self._adapters.stream(is_kept=True)
        if tensors is not None:  # the module's own layers have other names: fill a plain one
            with torch.random.fork_rng(devices=[]):  # it draws weights that are replaced
                module = AutoModelForCausalLM.from_config(
                    module.config,
                    dtype=module.dtype,
                    trust_remote_code=self._config.trust_remote_code,
                )
            load_module(module, tensors, directory=directory)
            _copy_buffers(self._model, module)
            with suppress(OSError):  # there is none
                module.generation_config = GenerationConfig.from_pretrained(self._model_path)
        module.save_pretrained(directory)
        tokenizer = AutoTokenizer.from_pretrained(
            self._model_path, trust_remote_code=self._config.trust_remote_code
        )
        tokenizer.save_pretrained(directory)

    def load(self, directory: Path, *, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Go on from what :meth:`save` wrote; return it (Any: plain values).

        Raises:
            CheckpointError: it cannot be read, or is of another model.
        """
        state = load_state(directory, is_mapped=self._ranks.is_sharded)
        saved = state["optimizer"]
        if state.get("is_parted"):
            tensors, saved = dcp_checkpoint.allocate_state(self._model, optimizer, saved)
            dcp_checkpoint.load_shards(tensors, directory)
            optimizer.load_state_dict(saved)
        else:
            self._load_weights(directory)
            dtensor.load_optimizer(optimizer, saved)
        restore_random_state(state["random"])
        return state

    def _load_weights(self, directory: Path) -> None:
        if self._adapters is not None:
            self._adapters.load(directory)  # what they stand beside never changes
            return
        folder, found = directory / MODEL_FOLDER, []
        if self._ranks.is_sharded:
            self._ranks.on_rank_zero(lambda: found.append(self._saved_weights(folder)))
            dtensor.scatter_weights(self._model, found[0] if found else None)
        else:
            load_module(self._model, self._saved_weights(folder), directory=folder)

    def _saved_weights(self, folder: Path) -> dict[str, Tensor]:
        """Return the weights of a checkpoint by name, tied ones once.

        Raises:
            CheckpointError: they cannot be read, or are those of another model.
        """
        from transformers import AutoModelForCausalLM

        try:
            saved = AutoModelForCausalLM.from_pretrained(
                folder, dtype=self._model.dtype, trust_remote_code=self._config.trust_remote_code
            )
        except Exception as error:  # of json, safetensors or transformers, whatever they meet first
            raise CheckpointError(
                f"checkpoint {str(folder)!r} holds no model: {type(error).__name__}: {error}. "
                "Resume from another checkpoint, or start with continue_from_checkpoint: false."
            ) from error
        weights = {name: parameter.detach() for name, parameter in saved.named_parameters()}
        _refuse_other(self._model, weights, directory=folder)
        return weights


def save_state(directory: Path, state: dict[str, Any]) -> None:
    """Write what :func:`load_state` returns.

    Raises:
        OSError: the disk is full; torch says at which byte it noticed.
    """
    with (directory / STATE_FILE).open("wb") as file:
        try:
            torch.save(state, file)
        except RuntimeError as error:
            reason = error.__context__
            raise (reason if isinstance(reason, OSError) else error) from None


def load_state(directory: Path, *, is_mapped: bool = False) -> dict[str, Any]:
    """Return what :func:`save_state` wrote; nothing but plain values is unpickled.

    Args:
        directory: where it is.
        is_mapped: tensors stay in the file until somebody reads them.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    path = directory / STATE_FILE
    try:
        if path.exists() and not zipfile.is_zipfile(path):
            raise ValueError("it is cut off or no checkpoint")
        state: dict[str, Any] = torch.load(
            path, map_location="cpu", weights_only=True, mmap=is_mapped
        )
        return state
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"checkpoint {str(path)!r} cannot be read: {error}. "
            "Resume from another checkpoint, or start with continue_from_checkpoint: false."
        ) from error


@torch.no_grad()
def load_module(module: nn.Module, theirs: Mapping[str, Tensor], *, directory: Path) -> None:
    """Copy parameters by their names into the module's own tensors.

    Raises:
        CheckpointError: they are those of another model.
    """
    _refuse_other(module, theirs, directory=directory)
    for name, parameter in module.named_parameters():
        parameter.copy_(theirs[name])


@torch.no_grad()
def _copy_buffers(whole: nn.Module, plain: nn.Module) -> None:
    own = {name.replace(".base_layer", ""): buffer for name, buffer in whole.named_buffers()}
    for name, buffer in plain.named_buffers():
        buffer.copy_(own.get(name, buffer))


def _refuse_other(module: nn.Module, theirs: Mapping[str, Tensor], *, directory: Path) -> None:
    theirs = theirs.like if isinstance(theirs, TensorStream) else theirs
    ours = {(name, parameter.shape) for name, parameter in module.named_parameters()}
    differing = ours ^ {(name, tensor.shape) for name, tensor in theirs.items()}
    if differing:
        raise CheckpointError(
            f"checkpoint {str(directory)!r} is of another model: {min(differing)[0]!r} differs. "
            "Set model.model_path to the model that the run began with."
        )


def random_state() -> dict[str, Any]:
    """Return the state of torch's generators."""
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": gpus}


def restore_random_state(state: dict[str, Any]) -> None:
    """Set torch's generators to a state; GPUs only if there are as many as there were."""
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
