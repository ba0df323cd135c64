"""Keep weights and optimizer states in CPU memory while nothing is computed with them.

    train step   weights   CPU --> GPU    passes, gradients            GPU --> CPU
    update       states       CPU --> GPU    optimizer.step()    GPU --> CPU

Between steps the engines have the GPU's memory, and in the passes the activations have that of the
states. Ranks that shard the weights (fsdp2) do this by themselves: see ``fsdp.py``.

Bytes travel through one pinned buffer a direction: while one half of it travels, the CPU fills or
empties the other. Frozen weights stay in CPU memory, too, and are not copied back to it.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trinity.trainer.pinned_copies import PinnedCopies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trinity.common.config.trainer import TrainerConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Offload:
    """Brings weights and states to where they are used, and takes them away again.

    Tensors that the optimizer and the modules know stay the same objects.
    """

    moves_weights: bool  # those of modules
    moves_states: bool  # those of optimizers
    away: Callable[[Tensor], Tensor]  # moves a tensor to where it is kept
    back: Callable[[Tensor], Tensor]  # moves it to where it is used
    settle: Callable[[], None] = lambda: None  # waits until all is moved away

    @classmethod
    def of(cls, config: TrainerConfig, *, device: torch.device, is_sharded: bool) -> Offload | None:
        """Return what ``param_offload`` and ``optimizer_offload`` ask for; None: nothing.

        Args:
            config: ``trainer``.
            device: that is computed on; a CPU has nowhere to bring anything.
            is_sharded: ranks have parts of them, which they offload in their own way.
        """
        can = device.type != "cpu" and not is_sharded
        if can and config.offload_policy:
            logger.warning(
                "trainer.offload_policy is for several ranks with trainer_strategy fsdp2, which "
                "this trainer has not: it changes nothing. Set trainer.param_offload and "
                "trainer.optimizer_offload."
            )
        if not can or not (config.param_offload or config.optimizer_offload):
            return None
        pinned = PinnedCopies(device)
        return cls(
            moves_weights=config.param_offload,
            moves_states=config.optimizer_offload,
            away=pinned.away,
            back=pinned.back,
            settle=pinned.settle,
        )

    @contextmanager
    def weights(self, modules: Callable[[], Iterable[nn.Module]]) -> Iterator[None]:
        """Have weights where they are used.

        Args:
            modules: whose they are; what was not there at the beginning is taken away at the end.
        """
        try:
            self._move_weights(modules(), self.back)
            yield
        finally:
            self.offload(modules())

    def offload(self, modules: Iterable[nn.Module]) -> None:
        """Take the weights away; gradients that a failed step left are dropped."""
        if self.moves_weights:
            for module in modules:
                module.zero_grad(set_to_none=True)
                self._move_weights([module], self.away)
            self.settle()
            _release()

    @contextmanager
    def states(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Have an optimizer's states where they are used."""
        try:
            self._move_states(optimizer, self.back)
            yield
        finally:
            if self.moves_states:
                self._move_states(optimizer, self.away)
                self.settle()
                _release()

    @torch.no_grad()
    def _move_weights(self, modules: Iterable[nn.Module], move: Callable[[Tensor], Tensor]) -> None:
        if self.moves_weights:
            for module in modules:
                for parameter in module.parameters():
                    parameter.data = move(parameter)

    def _move_states(
        self, optimizer: torch.optim.Optimizer, move: Callable[[Tensor], Tensor]
    ) -> None:
        if self.moves_states:
            for state in optimizer.state.values():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        state[name] = move(value)


def _release() -> None:
    """Give the memory to other processes on the GPU: torch would keep it for this one."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
