"""Share a batch between the processes that train one model.

every process   the whole batch, its plan, its normalisers
process i       its micro-batches of the plan: their share of the gradient
all-reduce      the shares summed: the gradient of the batch, in every process

Where several processes share each sequence, such a team has micro-batches as one process has them
otherwise, and what all of its members find alike counts once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

from trinity.errors import ConfigError, TrinityError
from trinity.trainer.telling import error_of, told, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import nn

    from trinity.common.metrics import Metrics
    from trinity.trainer.dealing import Plan
    from trinity.trainer.layout import Pack

_CUT_APART = (
    "the trainer's ranks have cut a batch in different ways, so that rows of it would be trained "
    "twice or never: their machines differ. Let all ranks have the same hardware and the same "
    "versions, or set trainer.num_ranks: 1."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What one process does while the others do as much."""

    packs: Sequence[Pack] | None  # None: nothing of its own
    num_passes: int = 0  # through the decoder, of each process; 0: as its own packs need


class Ranks:
    """Says which micro-batches are this process's own, and sums what the processes found.

    Args:
        group: the processes; None: this one alone.
        shares_weights: each holds a part of them, so that all make the same passes.
        sequence_size: how many share each sequence: a team of neighbours.
        timeout_s: how long one of a team may wait for another.

    Raises:
        ConfigError: there are no teams of that size.
    """

    def __init__(
        self,
        group: distributed.ProcessGroup | None = None,
        *,
        shares_weights: bool = False,
        sequence_size: int = 1,
        timeout_s: float = 0.0,
    ) -> None:
        self._group = group
        self.shares_weights = shares_weights and group is not None
        self.rank = 0 if group is None else distributed.get_rank(group)
        self.size = 1 if group is None else distributed.get_world_size(group)
        self.team, self._place = divmod(self.rank, sequence_size)
        self.num_teams, rest = divmod(self.size, sequence_size)
        self._sequence_size = sequence_size
        if rest or not self.num_teams:
            raise ConfigError(teams_refused(self.size, sequence_size))
        self.sequence: distributed.ProcessGroup | None = None  # None: each computes its own
        if group is not None and sequence_size > 1:
            self.sequence = sequence_group(group, size=sequence_size, timeout_s=timeout_s)
        self._plans = hashlib.blake2b(digest_size=8)  # of all that was shared out so far

    def own(self, plan: Plan) -> Sequence[Sequence[Pack]]:
        """Return the micro-batches of this process."""
        if self.size == 1:
            return plan
        self._note(plan)
        return plan.parts[self.team]

    def rounds(self, plan: Plan) -> Iterator[Round]:
        """Yield the micro-batches of this process; where weights are shared, as many as all do."""
        if not self.shares_weights:
            yield from (Round(packs=packs) for packs in self.own(plan))
            return
        self._note(plan)
        for parts in zip_longest(*plan.parts):
            has_stem = any(packs is not None and packs[0].stem for packs in parts)
            yield Round(packs=parts[self.team], num_passes=2 if has_stem else 1)

    def max_tokens(self, budget: int, *, num_tokens: int) -> int:
        """Return the budget of a team of processes, which leaves none without a micro-batch."""
        if self.size == 1:
            return budget
        return min(budget * self._sequence_size, max(1, -(-num_tokens // self.num_teams)))

    @property
    def moves_together(self) -> bool:
        """Return whether one that breaks off in a pass leaves others in the midst of it."""
        return self.shares_weights or self.sequence is not None

    def summed(
        self, compute: Callable[[], Metrics | TrinityError], *, makes_passes: bool = True
    ) -> Metrics:
        """Return the sum of what each process computes; the error of one is everybody's.

        Where weights or sequences are shared, one that breaks off leaves others in the midst of a
        pass: only an error that is returned, once all passes are made, can be told to them.

        Args:
            compute: returns this process's part, or what is wrong.
            makes_passes: whether it goes through the model.

        Raises:
            TrinityError: of the first process that had one.
            Exception: this process's own, if it had another.
        """
        if self._group is None:
            return _metrics_or_raise(compute())
        can_tell = not (makes_passes and self.moves_together)
        outcome, foreign = self._outcome_of(compute, can_tell=can_tell)
        outcomes = told(self._words_of(outcome), group=self._group)
        if foreign is not None:
            raise foreign  # itself: whoever hears it may know what to do, as with a full disk
        if isinstance(outcome, TrinityError):
            raise outcome
        return _totals(outcomes)

    def _note(self, plan: Plan) -> None:
        rows = [
            [[(pack.rows, len(pack), pack.stem) for pack in packs] for packs in part]
            for part in plan.parts
        ]
        self._plans.update(repr(rows).encode())

    def _words_of(self, outcome: Metrics | TrinityError) -> dict[str, Any]:
        if isinstance(outcome, TrinityError):
            return {"error": words_of(outcome)}
        own = {} if self._place else outcome  # the team's first says it for all
        metrics = {name: float(value) for name, value in own.items()}
        return {"metrics": metrics, "plans": self._plans.hexdigest()}

    def _outcome_of(
        self, compute: Callable[[], Metrics | TrinityError], *, can_tell: bool
    ) -> tuple[Metrics | TrinityError, Exception | None]:
        """Return what there is to tell the others, and, if it is not ours, the error itself."""
        try:
            return compute(), None
        except Exception as error:
            if not can_tell:
                raise
            if isinstance(error, TrinityError):
                return error, None
            return self._of_this_rank(error), error

    def first(self, do: Callable[[], None]) -> None:
        """Let the first process do it, while the others wait; its error is everybody's.

        Raises:
            TrinityError: it could not.
        """
        if self._group is None:
            do()
            return

        self.each(do if self.rank == 0 else lambda: None)

    def each(self, do: Callable[[], None]) -> None:
        """Let each process do it; the error of one is everybody's.

        Raises:
            TrinityError: one could not.
        """

        def done() -> Metrics:
            do()
            return {}

        self.summed(done, makes_passes=False)

    def of_first(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the first process tells; all ask (Any: what JSON can hold)."""
        return dict(message) if self._group is None else told(message, group=self._group)[0]

    def copy_first(self, values: Tensor) -> None:
        """Replace the values by those of the first process, in place."""
        if self._group is not None:
            distributed.broadcast(values, group=self._group, group_src=0)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum each gradient over the processes; one that a process lacks is 0 there.

        What none of them has stays without: an optimizer passes it over, as it does in one process.
        """
        own = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        if self._group is None or not own:  # those that are spread are summed
            return
        num_found = torch.tensor([p.grad is not None for p in own], dtype=torch.int32)
        distributed.all_reduce(num_found, group=self._group)
        for parameter, found in zip(own, num_found.tolist(), strict=True):
            if not found:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad, group=self._group)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over the processes, in place; what a team has alike counts once."""
        if self._place:
            values.zero_()
        if self._group is not None:
            distributed.all_reduce(values, group=self._group)
        return values

    def _of_this_rank(self, error: Exception) -> TrinityError:
        return TrinityError(
            f"rank {self.rank} of the trainer failed: {type(error).__name__}: {error}. "
            f"logs/trainer-{self.rank}.log in the run directory has its traceback."
        )


def _totals(outcomes: Sequence[Mapping[str, Any]]) -> Metrics:
    """Return the sums of what all processes told, if none had an error and all cut alike."""
    for found in outcomes:
        if "error" in found:
            raise error_of(found["error"])
    if len({found["plans"] for found in outcomes}) > 1:
        raise TrinityError(_CUT_APART)
    totals: Metrics = {}
    for found in outcomes:
        for name, value in found["metrics"].items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def _metrics_or_raise(outcome: Metrics | TrinityError) -> Metrics:
    if isinstance(outcome, TrinityError):
        raise outcome
    return outcome


def sequence_group(
    group: distributed.ProcessGroup, *, size: int, timeout_s: float
) -> distributed.ProcessGroup:
    """Return the ranks that share a sequence with this one; all ranks of the trainer ask.

    Args:
        group: all ranks, whose number is a multiple of ``size``.
        size: ranks that share a sequence, neighbours.
        timeout_s: how long one may wait for another.
    """
    rank = distributed.get_rank(group)
    own: distributed.ProcessGroup | None = None
    for first in range(0, distributed.get_world_size(group), size):
        members = list(range(first, first + size))
        found = distributed.new_group(members, timeout=timedelta(seconds=timeout_s))
        own = found if rank in members else own
    assert own is not None
    return own


def teams_refused(num_ranks: int, sequence_size: int) -> str:
    """Return why so many ranks make no teams of this size.

    >>> teams_refused(1, 2)[:64]
    'trainer.ulysses_sequence_parallel_size is 2, and the trainer has'
    """
    ranks = "one rank" if num_ranks == 1 else f"{num_ranks} ranks"
    return (
        f"trainer.ulysses_sequence_parallel_size is {sequence_size}, and the trainer has {ranks}, "
        f"which is no multiple of it. Set trainer.num_ranks to one, or the size to 1."
    )
