"""Gather tensors that are sharded over the ranks, and shard what one rank, or each of them, has.

A checkpoint holds full tensors, as one process would write them: any number of ranks reads it.
``set_model_state_dict`` of torch would broadcast from rank 0 by pickles (``broadcast_object_list``)
and each weight whole; ``get_model_state_dict`` gathers tied weights twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn


def full_tensor(value: Any) -> Any:
    """Return the full tensor of a sharded one; all ranks call it (Any: or a plain value)."""
    if not isinstance(value, DTensor):
        return value
    return value.to(value.device_mesh.device_type).full_tensor()  # shards may be in CPU memory


def gather_state(state: Mapping[Any, Any], *, is_kept: bool) -> dict[Any, Any]:
    """Return full tensors on the CPU, one after the other; all ranks call it (Any: as torch's).

    Args:
        state: tensors and plain values by name, or such mappings; the same names on all ranks.
        is_kept: False: this rank only helps, and gets no tensors.
    """
    found: dict[Any, Any] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found[name] = gather_state(value, is_kept=is_kept)
            continue
        full = full_tensor(value.detach() if isinstance(value, Tensor) else value)
        if is_kept:
            found[name] = full.cpu() if isinstance(full, Tensor) else full
    return found


@torch.no_grad()
def scatter_weights(module: nn.Module, weights: Mapping[str, Tensor] | None) -> None:
    """Fill this rank's shard of each weight from rank 0's full one; all ranks call it at once.

    No rank but the first ever has more than its shards and those of one weight.

    Args:
        module: whose weights are sharded; one that is not, as an adapter's, stays as it is.
        weights: full ones by name; None: the first rank has them.
    """
    for name, parameter in module.named_parameters():
        if not isinstance(parameter, DTensor):
            continue
        mesh = parameter.device_mesh
        like = {"dtype": parameter.dtype, "device": mesh.device_type}
        if weights is None:
            full = torch.empty(parameter.shape, **like)  # nothing is ever written into it
        else:
            full = weights[name].detach().to(**like)
        sharded = distribute_tensor(full, mesh, parameter.placements)
        parameter.to_local().copy_(sharded.to_local())  # which may be in CPU memory


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Go on from a state of full tensors, which each rank has; it keeps its shards of them."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    entries = {
        number: {name: _sharded_like(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": entries})


def _sharded_like(value: Any, parameter: Tensor) -> Any:  # Any: a tensor, or a plain value
    """Return this rank's shard of a moment, where its parameter is sharded."""
    is_moment = isinstance(value, Tensor) and value.shape == parameter.shape
    if not isinstance(parameter, DTensor) or not is_moment:
        return value
    mesh = parameter.device_mesh
    on_device = value.to(device=mesh.device_type, dtype=parameter.dtype)
    # Without a source each rank cuts its own shard.
    own = distribute_tensor(on_device, mesh, parameter.placements, src_data_rank=None)
    return own.to(parameter.device)  # which may be the CPU's, where shards are offloaded
