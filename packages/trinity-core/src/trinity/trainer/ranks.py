"""Share a batch between the processes that train one model.

every rank   the whole batch, its plan, its normalisers
rank i       its micro-batches of the plan: their share of the gradient
all-reduce   the shares summed: the gradient of the batch, on every rank

Ranks of one sequence-parallel group compute the same micro-batches together. There are ``dp_size``
such groups, each of ``sp_size`` neighbours; what a group's members find alike counts once.

Control messages travel as JSON: what comes over a network is parsed, and never unpickled, as
``all_gather_object`` of torch would do.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

from trinity.errors import ConfigError, TrinityError
from trinity.trainer.rank_messages import all_gather_json, error_to_json, total_of
from trinity.trainer.rendezvous import sequence_parallel_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch import nn

    from trinity.common.metrics import Metrics
    from trinity.trainer.microbatch import Plan
    from trinity.trainer.prefix_tree import Pack


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroStep:
    """What one rank computes while the others compute as much."""

    packs: Sequence[Pack] | None  # None: only dummy passes
    num_passes: int = 0  # through the decoder, of each rank; 0: as its own packs need


class RankSum:
    """Metrics that are summed over the ranks, once each has computed its own."""

    def __init__(self) -> None:
        self.own: Metrics | TrinityError = {}  # of this rank, or what is wrong
        self.total: Metrics = {}


class Ranks:
    """Says which micro-batches are this rank's, and sums what the ranks found.

    Args:
        group: the ranks; None: this process alone.
        is_sharded: each holds a part of the weights, so that all make the same passes.
        fsdp_size: how many neighbours share the weights, of which others have copies; -1: all.
        sp_size: how many share each sequence: a sequence-parallel group of neighbours.
        timeout_s: how long one of such a group may wait for another.

    Raises:
        ConfigError: the ranks do not divide into groups of that size.
    """

    def __init__(
        self,
        group: distributed.ProcessGroup | None = None,
        *,
        is_sharded: bool = False,
        fsdp_size: int = -1,
        sp_size: int = 1,
        timeout_s: float = 0.0,
    ) -> None:
        self._group = group
        self.is_sharded = is_sharded and group is not None
        self.rank = 0 if group is None else distributed.get_rank(group)
        self.size = 1 if group is None else distributed.get_world_size(group)
        self.num_shards = min(self.size, fsdp_size) if fsdp_size > 0 else self.size
        if self.is_sharded and self.size % self.num_shards:
            raise ConfigError(
                f"trainer.fsdp_size is {fsdp_size}, which does not divide the trainer's "
                f"{self.size} ranks. Use one that does, or -1."
            )
        self.dp_rank, self._sp_rank = divmod(self.rank, sp_size)
        self.dp_size, rest = divmod(self.size, sp_size)
        self._sp_size = sp_size
        if rest or not self.dp_size:
            ranks = "one rank" if self.size == 1 else f"{self.size} ranks"
            raise ConfigError(
                f"trainer.ulysses_sequence_parallel_size is {sp_size}, and the trainer has {ranks},"
                " which is no multiple of it. Set trainer.num_ranks to one, or the size to 1."
            )
        self.sp_group: distributed.ProcessGroup | None = None  # None: sequences are not shared
        if group is not None and sp_size > 1:
            self.sp_group = sequence_parallel_group(group, size=sp_size, timeout_s=timeout_s)
        self._plans = hashlib.blake2b(digest_size=8)  # of all that was shared out so far

    @property
    def communicates_in_pass(self) -> bool:
        """Return whether one that breaks off in a pass leaves others in the midst of it."""
        return self.is_sharded or self.sp_group is not None

    def max_tokens(self, budget: int, *, num_tokens: int) -> int:
        """Return the budget of a micro-batch, which leaves no rank without one."""
        if self.size == 1:
            return budget
        return min(budget * self._sp_size, max(1, -(-num_tokens // self.dp_size)))

    def micro_batches(self, plan: Plan) -> Sequence[Sequence[Pack]]:
        """Return the micro-batches of this rank."""
        if self.size == 1:
            return plan
        self._note(plan)
        return plan.per_rank[self.dp_rank]

    def micro_steps(self, plan: Plan) -> Iterator[MicroStep]:
        """Yield the micro-batches of this rank; where weights are sharded, as many as all do."""
        if not self.is_sharded:
            yield from (MicroStep(packs=packs) for packs in self.micro_batches(plan))
            return
        self._note(plan)
        for parts in zip_longest(*plan.per_rank):
            is_cached = any(packs is not None and packs[0].prefix_length for packs in parts)
            yield MicroStep(packs=parts[self.dp_rank], num_passes=2 if is_cached else 1)

    def _note(self, plan: Plan) -> None:
        rows = [
            [[(pack.rows, len(pack), pack.prefix_length) for pack in packs] for packs in part]
            for part in plan.per_rank
        ]
        self._plans.update(repr(rows).encode())

    @contextmanager
    def summing(self, *, makes_passes: bool = True) -> Iterator[RankSum]:
        """Sum the metrics that each rank computes inside; the error of one is everybody's.

        Where weights or sequences are shared, one that breaks off leaves others in the midst of a
        pass: only an error that is set as ``own``, once all passes are made, can be told to them.

        Args:
            makes_passes: whether what is inside goes through the model.

        Raises:
            TrinityError: of the first rank that had one.
            Exception: this rank's own, if it had another.
        """
        can_tell = self._group is not None and not (makes_passes and self.communicates_in_pass)
        metrics = RankSum()
        failure: Exception | None = None
        try:
            yield metrics
        except Exception as error:
            if not can_tell:
                raise
            metrics.own, failure = self._told_of(error), error
        if self._group is not None:
            outcomes = all_gather_json(self._outcome_to_json(metrics.own), group=self._group)
        if failure is not None:
            raise failure  # itself: whoever hears it may know what to do, as with a full disk
        if isinstance(metrics.own, TrinityError):
            raise metrics.own
        metrics.total = metrics.own if self._group is None else total_of(outcomes)

    def _outcome_to_json(self, outcome: Metrics | TrinityError) -> dict[str, Any]:
        if isinstance(outcome, TrinityError):
            return {"error": error_to_json(outcome)}
        own = {} if self._sp_rank else outcome  # the first of a group says it for all
        metrics = {name: float(value) for name, value in own.items()}
        return {"metrics": metrics, "plans": self._plans.hexdigest()}

    def _told_of(self, error: Exception) -> TrinityError:
        """Return the error that the other ranks raise."""
        if isinstance(error, TrinityError):
            return error
        return TrinityError(
            f"rank {self.rank} of the trainer failed: {type(error).__name__}: {error}. "
            f"logs/trainer-{self.rank}.log in the run directory has its traceback."
        )

    def on_rank_zero(self, do: Callable[[], None]) -> None:
        """Let the first rank do it, while the others wait; its error is everybody's.

        Raises:
            TrinityError: it could not.
        """
        self.on_each_rank(do if self.rank == 0 else lambda: None)

    def on_each_rank(self, do: Callable[[], None]) -> None:
        """Let each rank do it; the error of one is everybody's.

        Raises:
            TrinityError: one could not.
        """
        with self.summing(makes_passes=False):
            do()

    def broadcast_json(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the message of the first rank; all call it (Any: what JSON can hold)."""
        return all_gather_json(message, group=self._group)[0] if self._group else dict(message)

    def broadcast(self, values: Tensor) -> None:
        """Replace the values by those of the first rank, in place."""
        if self._group is not None:
            distributed.broadcast(values, group=self._group, group_src=0)

    def all_reduce(self, values: Tensor) -> Tensor:
        """Return the sum over the ranks, in place; what a group has alike counts once."""
        if self._sp_rank:
            values.zero_()
        if self._group is not None:
            distributed.all_reduce(values, group=self._group)
        return values

    def all_reduce_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum each gradient over the ranks; one that a rank lacks is 0 there.

        What none of them has stays without: an optimizer passes it over, as it does in one process.
        """
        own = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        if self._group is None or not own:  # those that are sharded are summed
            return
        num_found = torch.tensor([p.grad is not None for p in own], dtype=torch.int32)
        distributed.all_reduce(num_found, group=self._group)
        for parameter, found in zip(own, num_found.tolist(), strict=True):
            if not found:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            distributed.all_reduce(parameter.grad, group=self._group)
