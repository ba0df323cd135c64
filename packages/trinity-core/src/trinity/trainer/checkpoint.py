"""Write and read what a trainer needs to go on.

directory/
    huggingface/     the model and its tokenizer, as any tool reads them
    trainer.pt       optimizer, random state, version
"""

from __future__ import annotations

import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trinity.errors import CheckpointError
from trinity.trainer.spreading import placed_like

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from transformers import PreTrainedModel

MODEL_FOLDER = "huggingface"
STATE_FILE = "trainer.pt"


def save_hf(
    module: PreTrainedModel,
    directory: Path,
    *,
    tokenizer_path: str,
    tensors: Mapping[str, Tensor] | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Write the model in the Hugging Face format, with the tokenizer of ``tokenizer_path``.

    Args:
        module: the model.
        directory: where to.
        tokenizer_path: folder or id of its tokenizer.
        tensors: other weights than its own, by name; tied ones once.
        trust_remote_code: run code that comes with the tokenizer.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if tensors is not None:  # the module's own layers have other names: fill a plain one
        with torch.random.fork_rng(devices=[]):  # it draws weights that are replaced
            plain = AutoModelForCausalLM.from_config(
                module.config, dtype=module.dtype, trust_remote_code=trust_remote_code
            )
        load_module(plain, tensors, directory=directory)
        module = plain
    module.save_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_path, trust_remote_code=trust_remote_code)
    tokenizer.save_pretrained(directory)


def save_state(directory: Path, state: dict[str, Any]) -> None:
    """Write tensors, numbers and lists of them (Any: those)."""
    torch.save(state, directory / STATE_FILE)


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


def saved_weights(
    module: PreTrainedModel, directory: Path, *, trust_remote_code: bool = False
) -> dict[str, Tensor]:
    """Return the weights of a checkpoint by name, tied ones once.

    Args:
        module: the model that they are for.
        directory: in the Hugging Face format.
        trust_remote_code: run code that comes with the model.

    Raises:
        CheckpointError: they cannot be read, or are those of another model.
    """
    from transformers import AutoModelForCausalLM

    try:
        saved = AutoModelForCausalLM.from_pretrained(
            directory, dtype=module.dtype, trust_remote_code=trust_remote_code
        )
    except Exception as error:  # of json, safetensors or transformers, whatever they meet first
        raise CheckpointError(
            f"checkpoint {str(directory)!r} holds no model: {type(error).__name__}: {error}. "
            "Resume from another checkpoint, or start with continue_from_checkpoint: false."
        ) from error
    weights = {name: parameter.detach() for name, parameter in saved.named_parameters()}
    _refuse_other(module, weights, directory=directory)
    return weights


@torch.no_grad()
def load_module(module: nn.Module, theirs: Mapping[str, Tensor], *, directory: Path) -> None:
    """Copy parameters by their names into the module's own tensors.

    Raises:
        CheckpointError: they are those of another model.
    """
    _refuse_other(module, theirs, directory=directory)
    for name, parameter in module.named_parameters():
        parameter.copy_(placed_like(theirs[name], parameter))


def _refuse_other(module: nn.Module, theirs: Mapping[str, Tensor], *, directory: Path) -> None:
    ours = dict(module.named_parameters())
    differing = [
        name
        for name in ours.keys() | theirs.keys()
        if name not in ours or name not in theirs or ours[name].shape != theirs[name].shape
    ]
    if differing:
        raise CheckpointError(
            f"checkpoint {str(directory)!r} is of another model: {min(differing)!r} differs. "
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
