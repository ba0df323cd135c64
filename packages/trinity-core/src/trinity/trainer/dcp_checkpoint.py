"""Write each rank's shards of weights and optimizer state, and read them on any number of ranks.

shards/part-00001-of-00002.safetensors     what rank 0 holds, and where it stands in full tensors
shards/part-00002-of-00002.safetensors     what rank 1 holds

The format is that of ``torch.distributed.checkpoint`` (DCP) for safetensors. Ranks plan by
themselves: torch's planning sends them each other's plans as pickles, and what comes over a network
is not to be unpickled.
"""

from __future__ import annotations

import inspect
import re
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trinity.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import nn

FOLDER = "shards"
_NAME = re.compile(r"part-(\d{5})-of-(\d{5})\.safetensors$")
_REMEDY = "Resume from another checkpoint, or start with continue_from_checkpoint: false."


def num_bytes(module: nn.Module) -> int:
    """Return how large weights and an optimizer's state of two moments are, of all ranks."""
    return 3 * sum(p.numel() * p.element_size() for p in module.parameters())


def check_torch() -> None:
    """Refuse a torch that cannot write shards.

    Raises:
        ConfigError: it cannot.
    """
    try:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    except ImportError:
        can = False
    else:
        can = "save_distributed" in inspect.signature(HuggingFaceStorageWriter).parameters
    if not can:
        raise ConfigError(
            f"checkpoints of more than trainer.sharded_above_gb are written in parts, which torch "
            f"{torch.__version__} cannot do. Use a later torch, or raise it."
        )


def save_shard(tensors: Mapping[str, Tensor], directory: Path, *, rank: int, size: int) -> None:
    """Write this rank's shards of tensors that are sharded over all.

    Args:
        tensors: by name, the same names on all ranks.
        directory: the checkpoint's.
        rank: of this process.
        size: how many there are.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    scratch = directory / FOLDER / f".rank-{rank}"
    scratch.mkdir(parents=True, exist_ok=True)
    writer = HuggingFaceStorageWriter(str(scratch), save_distributed=True)
    with _without_warning():
        save(dict(tensors), storage_writer=writer, planner=_planner(), no_dist=True)
    (written,) = scratch.glob("*.safetensors")
    written.rename(directory / FOLDER / _file_name(rank + 1, size))
    scratch.rmdir()


def check_all_written(directory: Path, *, size: int) -> None:
    """Refuse a checkpoint that some ranks have written elsewhere.

    Raises:
        CheckpointError: a part is not where this process sees it.
    """
    for number in range(1, size + 1):  # by name: what a network disk lists may be older
        path = directory / FOLDER / _file_name(number, size)
        if not path.exists():
            raise CheckpointError(
                f"rank {number - 1} of the trainer has written its part of the checkpoint, and "
                f"rank 0 does not find {str(path)!r}: the run directory is not on one disk. Set "
                "checkpoint_root_dir to a folder that all machines share, or "
                "trainer.sharded_above_gb to more than the model needs."
            )


def load_shards(tensors: Mapping[str, Tensor], directory: Path) -> None:
    """Fill tensors, full or sharded, with what all ranks of then have written.

    Raises:
        CheckpointError: a part is missing or cannot be read, or is of another model.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    folder = directory / FOLDER
    _check_files(folder)
    reader = HuggingFaceStorageReader(str(folder))
    try:
        found = reader.read_metadata().state_dict_metadata
        names = tensors.keys() | found.keys()
        differing = [name for name in names if _shape(found.get(name)) != _shape(tensors.get(name))]
        if differing:
            raise CheckpointError(
                f"checkpoint {str(folder)!r} is of another model: {min(differing)!r} differs. "
                "Set model.model_path to the model that the run began with."
            )
        with _without_warning():
            load(dict(tensors), storage_reader=reader, no_dist=True)
    except CheckpointError:
        raise
    except Exception as error:  # of json, safetensors or torch, whatever they meet first
        raise _unreadable(folder, error) from error


def split_state(
    module: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return weights and moments by names, and what is left of the optimizer's state.

    Args:
        module: the model.
        optimizer: over those of its parameters that are trained.
    """
    state, names, tensors = optimizer.state_dict(), _names(module, optimizer), _weights(module)
    rest: dict[int, dict[str, Any]] = {}
    for number, values in state["state"].items():
        shape = names[number][1].shape
        moments = {n: v for n, v in values.items() if isinstance(v, Tensor) and v.shape == shape}
        tensors |= {_key(names[number][0], name): value for name, value in moments.items()}
        others = {name: value for name, value in values.items() if name not in moments}
        rest[number] = {"moments": sorted(moments), "others": others}
    return tensors, {**state, "state": rest}


def allocate_state(
    module: nn.Module, optimizer: torch.optim.Optimizer, rest: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors that :func:`load_shards` is to fill, and a state that holds the moments.

    Args:
        module: the model, whose own weights are filled.
        optimizer: over those of its parameters that are trained.
        rest: what :func:`split_state` left of the state.
    """
    names, tensors = _names(module, optimizer), _weights(module)
    entries = {}
    for number, values in rest["state"].items():
        if number not in names:  # of another model, which its names tell
            continue
        name, parameter = names[number]
        moments = {moment: torch.zeros_like(parameter) for moment in values["moments"]}
        tensors |= {_key(name, moment): value for moment, value in moments.items()}
        entries[number] = {**values["others"], **moments}
    return tensors, {**rest, "state": entries}


def _weights(module: nn.Module) -> dict[str, Tensor]:
    return {f"model.{name}": parameter.detach() for name, parameter in module.named_parameters()}


def _names(
    module: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[int, tuple[str, nn.Parameter]]:
    """Return name and parameter by the number that the optimizer has for it."""
    by_id = {id(parameter): name for name, parameter in module.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {number: (by_id[id(p)], p) for number, p in enumerate(parameters)}


def _key(parameter: str, moment: str) -> str:
    return f"optimizer.{parameter}.{moment}"


def _file_name(number: int, size: int) -> str:
    return f"part-{number:05}-of-{size:05}.safetensors"


def _check_files(folder: Path) -> None:
    """Refuse a folder that lacks a part, or has one that is cut off.

    Raises:
        CheckpointError: it is named.
    """
    from safetensors import safe_open

    found = {path: match for path in folder.glob("part-*") if (match := _NAME.search(path.name))}
    size = max((int(match.group(2)) for match in found.values()), default=1)
    for number in range(1, size + 1):
        path = folder / _file_name(number, size)
        if path not in found:
            raise CheckpointError(f"checkpoint {str(path)!r} is missing. {_REMEDY}")
        try:
            with safe_open(path, framework="pt"):
                pass
        except Exception as error:  # of safetensors
            raise _unreadable(path, error) from error
    others = sorted(path.name for path, match in found.items() if int(match.group(2)) != size)
    if others:
        raise CheckpointError(
            f"checkpoint {str(folder / others[0])!r} is of another save. Remove it, or resume from "
            "another checkpoint."
        )


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"checkpoint {str(path)!r} cannot be read: {error}. {_REMEDY}")


@contextmanager
def _without_warning() -> Iterator[None]:
    """Keep torch from warning that ranks plan by themselves, which is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _planner() -> Any:  # Any: of torch, whose import takes long
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.metadata import Metadata

    class LocalPlanner(DefaultSavePlanner):
        """Plans what this rank holds, without asking who has the rest."""

        def create_global_plan(self, all_plans: Any) -> Any:
            self.global_plan, self.metadata = all_plans, Metadata(state_dict_metadata={})
            return self.global_plan, self.metadata

    return LocalPlanner()


def _shape(known: Any) -> tuple[int, ...] | None:  # Any: a tensor, or what torch keeps of one
    size = known.shape if isinstance(known, Tensor) else getattr(known, "size", None)
    return None if size is None else tuple(size)
