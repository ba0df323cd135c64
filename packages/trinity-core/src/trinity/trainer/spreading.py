"""Turn what is spread over the ranks into whole tensors, and whole ones into a rank's parts.

A checkpoint holds whole tensors, as one process would write them: any number of ranks reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from trinity.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch


def refuse_beside(*, adapters: bool, critic: bool, shares_sequences: bool) -> None:
    """Refuse what ranks do not share as they do the model; the check says so where it can know.

    Raises:
        ConfigError: there is something.
    """
    if adapters or critic:
        if shares_sequences:
            raise ConfigError(
                "trainer.ulysses_sequence_parallel_size above 1 shares the sequences of neither "
                "LoRA adapters nor a critic between the trainer's ranks. Set it to 1."
            )
        raise ConfigError(
            "trainer.trainer_strategy fsdp2 spreads neither LoRA adapters nor a critic over the "
            "trainer's ranks. Use ddp."
        )


def whole(value: Any) -> Any:
    """Return a tensor with all its parts, if it is spread; all ranks ask (Any: or a number)."""
    if not isinstance(value, DTensor):
        return value
    return value.to(value.device_mesh.device_type).full_tensor()  # parts may be in CPU memory


def whole_tensors(named: Iterable[tuple[str, Tensor]], *, is_kept: bool) -> dict[str, Tensor]:
    """Return all parts of each tensor, on the CPU, one after the other; all ranks ask for them.

    Args:
        named: names and tensors, the same on all ranks.
        is_kept: False: this rank only helps, and gets nothing.
    """
    found = {}
    for name, tensor in named:
        full = whole(tensor.detach())
        if is_kept:
            found[name] = full.cpu()
    return found


def placed_like(value: Tensor, spread: Tensor) -> Tensor:
    """Return this rank's part of a tensor that all ranks have, where the other one is spread."""
    if not isinstance(spread, DTensor):
        return value
    mesh = spread.device_mesh
    on_device = value.to(device=mesh.device_type, dtype=spread.dtype)
    own = distribute_tensor(  # without a source each rank cuts its own
        on_device, mesh, spread.placements, src_data_rank=None
    )
    return own.to(spread.device)  # which may be the CPU's, where parts are offloaded


def optimizer_state(state: Mapping[str, Any], *, is_kept: bool) -> dict[str, Any]:
    """Return an optimizer's state with whole tensors, as one process would have it."""
    entries: dict[int, dict[str, Any]] = {}
    for number, values in state["state"].items():
        full = {name: whole(value) for name, value in values.items()}
        if is_kept:
            entries[number] = {
                name: value.cpu() if isinstance(value, Tensor) else value
                for name, value in full.items()
            }
    return {**state, "state": entries}


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Go on from what :func:`optimizer_state` returned, each rank with its parts."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    entries = {
        number: {
            name: placed_like(value, parameters[number])
            if isinstance(value, Tensor) and value.shape == parameters[number].shape
            else value
            for name, value in values.items()
        }
        for number, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": entries})
