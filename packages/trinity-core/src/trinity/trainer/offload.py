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
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trinity.common.config.trainer import TrainerConfig

logger = logging.getLogger(__name__)


class Offload:
    """Brings weights and states to where they are used, and takes them away again.

    Tensors that the optimizer and the modules know stay the same objects.

    Args:
        moves_weights: those of modules.
        moves_states: those of optimizers.
        away: moves a tensor to where it is kept.
        back: moves it to where it is used.
        settle: waits until all is moved away.
    """

    def __init__(
        self,
        *,
        moves_weights: bool,
        moves_states: bool,
        away: Callable[[Tensor], Tensor],
        back: Callable[[Tensor], Tensor],
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._moves_weights = moves_weights
        self._moves_states = moves_states
        self._away = away
        self._back = back
        self._settle = settle

    @classmethod
    def of(cls, config: TrainerConfig, *, device: torch.device, is_sharded: bool) -> Offload:
        """Return what ``param_offload`` and ``optimizer_offload`` ask for.

        Args:
            config: ``trainer``.
            device: that is computed on; a CPU has nowhere to bring anything.
            is_sharded: ranks have parts of them, which they offload in their own way.
        """
        pinned = PinnedCopies(device)
        can = device.type != "cpu" and not is_sharded
        if can and config.offload_policy:
            logger.warning(
                "trainer.offload_policy is for several ranks with trainer_strategy fsdp2, which "
                "this trainer has not: it changes nothing. Set trainer.param_offload and "
                "trainer.optimizer_offload."
            )
        return cls(
            moves_weights=can and config.param_offload,
            moves_states=can and config.optimizer_offload,
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
            self._move_weights(modules(), self._back)
            yield
        finally:
            self.offload(modules())

    def offload(self, modules: Iterable[nn.Module]) -> None:
        """Take the weights away; gradients that a failed step left are dropped."""
        if self._moves_weights:
            for module in modules:
                module.zero_grad(set_to_none=True)
                self._move_weights([module], self._away)
            self._settle()
            _release()

    @contextmanager
    def states(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Have an optimizer's states where they are used."""
        try:
            self._move_states(optimizer, self._back)
            yield
        finally:
            if self._moves_states:
                self._move_states(optimizer, self._away)
                self._settle()
                _release()

    @torch.no_grad()
    def _move_weights(self, modules: Iterable[nn.Module], move: Callable[[Tensor], Tensor]) -> None:
        if self._moves_weights:
            for module in modules:
                for parameter in module.parameters():
                    parameter.data = move(parameter)

    def _move_states(
        self, optimizer: torch.optim.Optimizer, move: Callable[[Tensor], Tensor]
    ) -> None:
        if self._moves_states:
            for state in optimizer.state.values():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        state[name] = move(value)


class PinnedCopies:
    """Copies tensors between a GPU and CPU memory.

    Args:
        device: the GPU.
        half_bytes: of the two halves of each direction's buffer.
    """

    def __init__(self, device: torch.device, *, half_bytes: int = 2**26) -> None:
        self._device = device
        self._up, self._down = (Staging(half_bytes=half_bytes) for _ in range(2))
        self._frozen: WeakIdKeyDictionary = WeakIdKeyDictionary()  # what CPU memory has of them

    def back(self, tensor: Tensor) -> Tensor:
        """Return a tensor with the same numbers on the GPU, for what is computed there next."""
        if tensor.device == self._device:
            return tensor.detach()
        if _is_frozen(tensor):
            self._frozen[tensor] = tensor.detach()
        return self._up.copied(tensor, device=self._device)

    def away(self, tensor: Tensor) -> Tensor:
        """Return a tensor in CPU memory, which has the same numbers after :meth:`settle`."""
        if tensor.device.type == "cpu":
            return tensor.detach()
        known: Tensor | None = self._frozen.pop(tensor, None)
        return self._down.copied(tensor, device=torch.device("cpu")) if known is None else known

    def settle(self) -> None:
        self._down.settle()


def _is_frozen(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) and not tensor.requires_grad


class Staging:
    """One pinned buffer, through which bytes travel in one direction."""

    def __init__(self, *, half_bytes: int) -> None:
        self._size = half_bytes
        self._halves: list[_Half] = []  # the one in use, and the one that travels

    def copied(self, tensor: Tensor, *, device: torch.device) -> Tensor:
        """Return a tensor on another device; on a CPU its numbers are there once all is settled."""
        target = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        source_N, target_N = (_bytes_of(one) for one in (tensor, target))
        begin = 0
        while begin < len(source_N):
            half = self._with_space()
            size = min(len(source_N) - begin, self._size - half.used)
            place = slice(begin, begin + size)
            half.pass_on(source_N[place], target_N[place])
            begin += size
        return target

    def settle(self) -> None:
        """Wait until all bytes are where they belong."""
        for _ in self._halves:
            self._turn()

    def _with_space(self) -> _Half:
        if not self._halves:
            self._halves = [_Half(self._size) for _ in range(2)]
        if self._halves[0].used == self._size:
            self._turn()
        return self._halves[0]

    def _turn(self) -> None:
        self._halves[0].left.record()
        self._halves.reverse()
        self._halves[0].empty()


class _Half:
    def __init__(self, size: int) -> None:
        self.buffer_N = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.used = 0
        self.left = torch.cuda.Event()  # recorded once its bytes are on their way
        self._arriving: list[tuple[Tensor, Tensor]] = []  # what the CPU has to take out

    def pass_on(self, source_N: Tensor, target_N: Tensor) -> None:
        own_N = self.buffer_N[self.used : self.used + len(source_N)]
        own_N.copy_(source_N, non_blocking=True)
        if target_N.device.type == "cpu":
            self._arriving.append((own_N, target_N))
        else:
            target_N.copy_(own_N, non_blocking=True)
        self.used += len(source_N)

    def empty(self) -> None:
        if self.used:
            self.left.synchronize()
        for own_N, target_N in self._arriving:
            target_N.copy_(own_N)
        self.used, self._arriving = 0, []


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _release() -> None:
    """Give the memory to other processes on the GPU: torch would keep it for this one."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
