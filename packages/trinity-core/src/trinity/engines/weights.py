"""Replaces the weights of a model in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trinity.errors import ModelError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


@torch.no_grad()
def copy_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors into the module; all of them fit, or nothing is changed.

    Tied weights may come under any one of their names, or under all of them with equal values.

    Raises:
        ModelError: a name is unknown, a weight is missing, a shape differs, tied weights differ.
    """
    targets = module.state_dict(keep_vars=True)
    _check_names(module, targets, tensors)
    _check_shapes(targets, tensors)
    _check_tied(targets, tensors)
    for name, tensor in tensors.items():
        targets[name].copy_(tensor)


def _check_names(
    module: nn.Module, targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> None:
    for name in tensors:
        if name not in targets:
            raise ModelError(
                f"the snapshot holds a weight {name!r} that the engine's model does not have."
                f"{did_you_mean(name, targets)} Trainer and engine need the same model_path."
            )
    given = {id(targets[name]) for name in tensors}
    missing = [name for name, weight in module.named_parameters() if id(weight) not in given]
    if missing:
        raise ModelError(
            f"the snapshot lacks {len(missing)} weights of the engine's model, {missing[0]!r} "
            f"among them. Trainer and engine need the same model_path."
        )


def _check_shapes(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.shape != targets[name].shape:
            raise ModelError(
                f"the weight {name!r} has shape {list(tensor.shape)} in the snapshot, but "
                f"{list(targets[name].shape)} in the engine's model. "
                f"Trainer and engine need the same model_path."
            )


def _check_tied(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        other = first.setdefault(id(targets[name]), name)
        if tensor is tensors[other] or tensor.data_ptr() == tensors[other].data_ptr():
            continue
        if not torch.equal(tensor, tensors[other]):
            raise ModelError(
                f"the engine's model ties {name!r} to {other!r}, but the snapshot holds different "
                f"values for them. Set tie_word_embeddings in the model's config.json as trained."
            )
