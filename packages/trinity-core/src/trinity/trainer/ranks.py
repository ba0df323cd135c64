"""Share a batch between the processes that train one model.

every process   the whole batch, its plan, its normalisers
process i       micro-batches i, i + n, ...: their share of the gradient
all-reduce      the shares summed: the gradient of the batch, in every process
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed

from trinity.errors import TrinityError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import nn

    from trinity.common.metrics import Metrics
    from trinity.trainer.layout import Pack

__all__ = ["Ranks"]


class Ranks:
    """Says which micro-batches are this process's own, and sums what the processes found.

    Args:
        group: the processes; None: this one alone.
    """

    def __init__(self, group: distributed.ProcessGroup | None = None) -> None:
        self._group = group
        self.rank = 0 if group is None else distributed.get_rank(group)
        self.size = 1 if group is None else distributed.get_world_size(group)

    def own(self, plan: Sequence[Sequence[Pack]]) -> Sequence[Sequence[Pack]]:
        """Return the micro-batches of this process."""
        return plan[self.rank :: self.size]

    def max_tokens(self, budget: int, *, num_tokens: int) -> int:
        """Return a budget of tokens that leaves no process without a micro-batch."""
        return budget if self.size == 1 else min(budget, max(1, -(-num_tokens // self.size)))

    def summed(self, compute: Callable[[], Metrics]) -> Metrics:
        """Return the sum of what each process computes; the error of one is everybody's.

        Raises:
            TrinityError: of the first process that had one.
            Exception: this process's own, where all had another.
        """
        if self._group is None:
            return compute()
        foreign: Exception | None = None
        outcome: Metrics | TrinityError
        try:
            outcome = compute()
        except TrinityError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001 -- told by all ranks
            foreign, outcome = error, self._of_this_rank(error)
        outcomes: list[Any] = [None] * self.size
        distributed.all_gather_object(outcomes, outcome, group=self._group)
        errors = [found for found in outcomes if isinstance(found, TrinityError)]
        if foreign is not None and len(errors) == self.size:
            raise foreign
        if errors:
            raise errors[0] from foreign
        totals: Metrics = {}
        for found in outcomes:
            for name, value in found.items():
                totals[name] = totals.get(name, 0.0) + value
        return totals

    def first(self, do: Callable[[], None]) -> None:
        """Let the first process do it, while the others wait; its error is everybody's.

        Raises:
            TrinityError: it could not.
        """
        if self._group is None:
            do()
            return

        def if_first() -> Metrics:
            if self.rank == 0:
                do()
            return {}

        self.summed(if_first)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum each gradient over the processes; one that a process lacks is 0 there."""
        if self._group is None:
            return
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad, group=self._group)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the processes, in place."""
        if self._group is not None:
            distributed.all_reduce(values, group=self._group)
        return values

    def _of_this_rank(self, error: Exception) -> TrinityError:
        return TrinityError(
            f"rank {self.rank} of the trainer failed: {type(error).__name__}: {error}. "
            f"logs/trainer-{self.rank}.log in the run directory has its traceback."
        )
