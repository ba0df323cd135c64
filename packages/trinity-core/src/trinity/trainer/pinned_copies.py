"""Copy tensors between a GPU and CPU memory through one pinned buffer a direction."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary


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
        if isinstance(tensor, nn.Parameter) and not tensor.requires_grad:
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


class Staging:
    """One pinned buffer, through which bytes travel in one direction."""

    def __init__(self, *, half_bytes: int) -> None:
        self._size = half_bytes
        self._halves: list[_Half] = []  # the one in use, and the one that travels

    def copied(self, tensor: Tensor, *, device: torch.device) -> Tensor:
        """Return a tensor on another device; on a CPU its numbers are there once all is settled."""
        target = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        source_N, target_N = (
            one.detach().contiguous().view(-1).view(torch.uint8) for one in (tensor, target)
        )
        begin = 0
        while begin < len(source_N):
            half = self._with_space()
            size = min(len(source_N) - begin, self._size - half.used)
            place = slice(begin, begin + size)
            half.pass_on(source_N[place], target_N[place])
            begin += size
        return target

    def settle(self) -> None:
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
