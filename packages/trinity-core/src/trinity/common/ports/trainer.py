"""Who turns experiences into weights, and who brings these to the engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from transformers import PreTrainedModel

    from trinity.common.batch import ExperienceBatch
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports.weights import WeightSnapshot, WeightVersion

__all__ = ["SharesModule", "SyncMethod", "TellsTrained", "Trainer"]


class Trainer(Protocol):
    """Makes one optimizer step of each batch.

    It is made with ``config``, and with those of ``model_path``, ``total_steps`` and ``seed`` that
    its constructor names. One that names ``group`` too can be one of several ranks: it is given
    the group of ``torch.distributed`` whose processes train one model, or None where it is alone.
    Every rank then gets the same calls with the same experiences; rank 0 writes checkpoints.
    """

    def train_step(self, experiences: Sequence[Experience], *, step: int) -> Metrics:
        """Return the metrics of one optimizer step; the weights are one version newer then.

        Raises:
            TrinityError: the step cannot be made; the weights are as before.
        """

    def snapshot(self, *, copy: bool) -> WeightSnapshot:
        """Return the weights by their names in the model.

        Args:
            copy: False: they may be the trainer's own tensors, which the next step changes.
        """

    def save(self, directory: Path) -> None:
        """Write what :meth:`load` needs, and the model in ``directory / "huggingface"``."""

    def load(self, directory: Path) -> None:
        """Go on from what :meth:`save` wrote."""

    def close(self) -> None:
        """Free what the trainer holds."""


class SharesModule(Protocol):
    """Ability ``shares_module`` of a trainer; an engine with it takes ``module=``.

    Where both have it and nobody can see the difference, one model serves both; else the engine
    keeps weights of its own.
    """

    @property
    def module(self) -> PreTrainedModel:
        """Return the transformers model, whose tensors are updated in place."""


class TellsTrained(Protocol):
    """Ability ``trained_batch`` of a trainer: it says what a step made of its experiences.

    Without it, the samples that people look at show advantages and masks as the buffer gave them.
    """

    def trained_batch(self) -> ExperienceBatch | None:
        """Return the batch of the last step as the losses saw it, once; None: there is none."""


class SyncMethod(Protocol):
    """Brings weights to the engines. It is made with ``engines``, all of them."""

    def sync(self, snapshot: Callable[[], WeightSnapshot]) -> WeightVersion:
        """Bring the weights of ``snapshot()`` to all engines and return their version."""
