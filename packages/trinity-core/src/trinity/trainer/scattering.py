"""Spread a model over the ranks of which the first alone has read the weights.

    rank 0    reads the model, whole, into CPU memory       the others   read what kind it is
    all       the same model without weights --> spread --> room for this rank's parts
    rank 0    one weight after the other --> its part of each --> the others

So no other rank ever has more than its parts and those of one weight, and no GPU has them all.
What a model computes when it is built (the angles of its positions) comes from rank 0 too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from trinity.errors import ModelError, NotSupportedYetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.trainer.ranks import Ranks

_OF_THE_FILE = {"_name_or_path", "transformers_version", "dtype", "torch_dtype"}  # not of the model


def empty_model(
    config: Any, *, dtype: torch.dtype, is_tied: bool, trust_remote_code: bool = False
) -> Any:
    """Return a transformers model whose tensors have shapes and no content (Any: half typed).

    Args:
        config: of transformers; it is the model's from here on.
        dtype: of the weights.
        is_tied: the output layer is the embedding, whatever the configuration says.
        trust_remote_code: run code that comes with the model.

    Raises:
        NotSupportedYetError: it keeps tensors where nobody finds them.
    """
    from transformers import AutoModelForCausalLM

    for part in (config, config.get_text_config(decoder=True)):
        part.tie_word_embeddings = is_tied
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        module: Any = AutoModelForCausalLM.from_config(
            config, dtype=dtype, trust_remote_code=trust_remote_code
        )
    for part in module.modules():
        hidden = [name for name, value in vars(part).items() if isinstance(value, Tensor)]
        if hidden:
            raise NotSupportedYetError(
                f"model type {config.model_type!r} keeps {hidden[0]!r} in {type(part).__name__}, "
                "neither as a weight nor as a buffer, so trainer.trainer_strategy fsdp2 cannot "
                "spread it. Use ddp."
            )
    return module.eval()


def refuse_other_layout(module: nn.Module, told: list[list[Any]]) -> None:
    """Refuse a model that is not built as the one that the first rank has read.

    Args:
        module: the model without weights.
        told: what :func:`layout_of` said of the first rank's (Any: names and sizes).

    Raises:
        ModelError: they differ.
    """
    own = layout_of(module)
    if own != told:
        differing = [entry[0] for entry in own + told if entry not in own or entry not in told]
        first = next(iter(differing), own[0][0])  # in another order, if none differs
        raise ModelError(
            f"the trainer's ranks have different models: {first!r} is not the same on rank "
            "0 and here. Let all machines have the same model folder and versions, or use "
            "trainer.trainer_strategy: ddp."
        )


def settings_of(config: Any) -> dict[str, Any]:
    """Return what a configuration of transformers says of the model, as JSON has it (Any: JSON)."""
    said: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return {name: value for name, value in said.items() if name not in _OF_THE_FILE}


def refuse_other_settings(own: Mapping[str, Any], told: Mapping[str, Any]) -> None:
    """Refuse a configuration by which another function would be computed (Any: as above).

    Args:
        own: :func:`settings_of` this rank's.
        told: those of the first rank.

    Raises:
        ModelError: they differ.
    """
    names = sorted(name for name in own | told if own.get(name) != told.get(name))
    if names:
        raise ModelError(
            f"the trainer's ranks have different models: {names[0]} is "
            f"{told.get(names[0])!r} on rank 0 and {own.get(names[0])!r} here. Copy rank 0's "
            "config.json to all machines, with one version of transformers."
        )


def layout_of(module: nn.Module) -> list[list[Any]]:
    """Return name, shape and type of each weight and buffer, as JSON has them."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return [[name, list(tensor.shape), str(tensor.dtype)] for name, tensor in named]


def fill(
    module: nn.Module, source: nn.Module | None, *, ranks: Ranks, device: torch.device
) -> None:
    """Give a spread model weights and buffers; all ranks call it at once.

    Args:
        module: the model, with room for this rank's parts.
        source: the same, whole; None: another rank has it.
        ranks: the processes.
        device: that buffers are on.
    """
    weights = None if source is None else dict(source.named_parameters())
    scatter_weights(module, weights)
    theirs = {} if source is None else dict(source.named_buffers(remove_duplicate=False))
    for path, part in module.named_modules():
        for name, buffer in part.named_buffers(recurse=False, remove_duplicate=False):
            full_name = f"{path}.{name}" if path else name
            own = torch.empty(buffer.shape, dtype=buffer.dtype, device=device)
            if source is not None:
                own.copy_(theirs[full_name])
            ranks.copy_first(own)
            setattr(part, name, own)


@torch.no_grad()
def scatter_weights(module: nn.Module, weights: Mapping[str, Tensor] | None) -> None:
    """Fill this rank's parts of each weight; all ranks call it at once.

    Args:
        module: whose weights are spread.
        weights: whole ones by name; None: the first rank has them.
    """
    for name, parameter in module.named_parameters():
        assert isinstance(parameter, DTensor)
        mesh = parameter.device_mesh
        like = {"dtype": parameter.dtype, "device": mesh.device_type}
        if weights is None:
            whole = torch.empty(parameter.shape, **like)  # nothing is ever written into it
        else:
            whole = weights[name].detach().to(**like)
        spread = distribute_tensor(whole, mesh, parameter.placements)
        parameter.to_local().copy_(spread.to_local())  # which may be in CPU memory
