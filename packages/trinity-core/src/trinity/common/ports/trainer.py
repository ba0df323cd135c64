"""Who turns experiences into weights, and who brings these to the engines."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor
    from transformers import PreTrainedModel

    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports.weights import WeightSnapshot, WeightVersion


class Trainer(ABC):
    """Makes one optimizer step of each batch.

    It is made with ``config``, and with those of ``model_path``, ``total_steps`` and ``seed`` that
    its constructor names. One that names ``group`` too can be one of several ranks: it is given
    the group of ``torch.distributed`` whose processes train one model, or None where it is alone.
    Every rank then gets the same calls with the same experiences; rank 0 writes checkpoints.
    """

    #: The model whose tensors are updated in place, which an engine in this process may use as it
    #: is; None: it is not shared, and the engine keeps weights of its own.
    module: PreTrainedModel | None = None

    @abstractmethod
    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step; the weights are one version newer then.

        Raises:
            TrinityError: the step cannot be made; the weights are as before.
        """

    @abstractmethod
    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the weights by their names in the model.

        Args:
            copy: False: they may be the trainer's own tensors, which the next step changes.
        """

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write what :meth:`load` needs, and the model in ``directory / "huggingface"``."""

    @abstractmethod
    def load(self, directory: Path) -> None:
        """Go on from what :meth:`save` wrote."""

    def close(self) -> None:
        """Free what the trainer holds."""

    def weight_digest(self) -> WeightDigest | None:
        """Return the digest of the weights that :meth:`snapshot` gave last.

        Without it (None), it is made of what :meth:`snapshot` gives; a trainer in another process
        has it.
        """
        return None

    def trained_batch(self) -> ExperienceBatch | None:
        """Return the batch of the last step as the losses saw it, once; None: there is none.

        Without it, samples show advantages and masks as the buffer gave them.
        """
        return None


class SyncMethod(ABC):
    """Brings weights to the engines. It is made with ``engines``, all of them.

    One whose constructor names ``sender`` brings them from the trainer's process to the engines'
    by itself; ``sender`` is None where all parts share one process. Others go through Ray.
    """

    needs_one_machine: bool = False  # it works only where trainer and engines share a machine

    @abstractmethod
    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        """Bring the weights of ``snapshot()`` to all engines and return their version."""


#: By the name of a weight: its number format, and its values at places that the name decides.
WeightDigest = Mapping[str, tuple[str, tuple[float, ...]]]
NUM_PLACES = 4


def digest_of(tensors: Mapping[str, Tensor]) -> WeightDigest:
    """Return the digest of these weights; nothing is copied but the numbers."""
    import torch

    shown: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.numel():
            places = _places(name, tuple(tensor.shape))
            shown[name] = tensor.detach()[places].reshape(-1) if tensor.dim() else tensor[None]
    if not shown:
        return {}
    flat = torch.cat([values.double() for values in shown.values()]).tolist()  # one wait for a GPU
    digest, start = {}, 0
    for name, values in shown.items():
        end = start + len(values)
        digest[name] = str(values.dtype).removeprefix("torch."), tuple(flat[start:end])
        start = end
    return digest


def differing(given: WeightDigest, got: WeightDigest) -> list[str]:
    """Return the weights that both have and that differ, in the number format of ``got``."""
    import torch

    names = []
    for name, (dtype, values) in got.items():
        if name in given:
            kind = getattr(torch, dtype)
            wanted, own = (
                torch.tensor(one, dtype=torch.float64).to(kind) for one in (given[name][1], values)
            )
            if not torch.equal(wanted, own):
                names.append(name)
    return names


@cache
def _places(name: str, shape: tuple[int, ...]) -> tuple[list[int], ...]:
    draw = random.Random(name)
    return tuple([draw.randrange(size) for _ in range(NUM_PLACES)] for size in shape)
