"""How far the explorer may run ahead of the trainer, where each goes on by itself.

explore 1 | explore 2 | explore 3 | explore 4 | ...     begins while at most L steps are not trained
          | train 1    | train 2     | train 3          a batch is the oldest whole one
                    weights       weights               between two steps, or during one

A step is *open* from its beginning until all that it left was trained. Step s begins when at most
L older ones are open, so that at most what L steps left is trained between its weights and itself,
and what the sync interval i adds: with one batch a step, ``L + i - 1`` optimizer steps. Where steps
leave more or less than a batch, :meth:`Lead.most_age` counts in experiences.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from trinity.runtime.pace import sync_interval_of

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.runtime.record.progress import Progress

__all__ = ["Lead", "LeadOfExplorer", "LeadOfTrainer", "Left", "Standing", "lead_of"]


@dataclass(frozen=True, kw_only=True)
class Left:
    """What explore steps have left so far, in experiences.

    >>> left = Left(batch=4).after(8)
    >>> left.most_over, left.after(6).most_over
    (0, 2)

    Attributes:
        batch: that an optimizer step reads.
        most: of one explore step.
        unit: the greatest number that divides a batch and what each step left; 0: none has.
    """

    batch: int
    most: int = 0
    unit: int = 0

    def after(self, count: int) -> Left:
        """Return the same after a step that left so many."""
        unit = math.gcd(self.unit or self.batch, count)
        return replace(self, most=max(self.most, count), unit=unit)

    @property
    def most_over(self) -> int:
        """Return how many can wait that are no whole batch."""
        return self.batch - (self.unit or self.batch)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How far both sides are.

    Attributes:
        begun: explore steps.
        explored: those of them that have ended; all that follows counts these.
        first_open: the oldest one that left something which is not trained; ``explored + 1``: none.
        trained: optimizer steps.
        pulled: the optimizer steps that the engines' weights have had.
        synced: the explore step after which the explorer asked for weights last.
        can_train: whether a whole batch is there.
    """

    begun: int
    explored: int
    first_open: int
    trained: int
    pulled: int
    synced: int = 0
    can_train: bool = False

    @classmethod
    def of(cls, progress: Progress, *, begun: int, can_train: bool) -> Standing:
        """Return that of a run in which nothing is made due: all that was written may be trained.

        >>> from trinity.runtime.record.progress import Progress
        >>> progress = Progress(explored=5, written=[0, 3, 4])
        >>> Standing.of(progress, begun=6, can_train=False).first_open
        4
        """
        num_done = next(
            (n for n, left in enumerate(progress.written) if left), len(progress.written)
        )
        return cls(
            begun=begun,
            explored=progress.explored,
            first_open=progress.explored - len(progress.written) + num_done + 1,
            trained=progress.trained,
            pulled=progress.pulled,
            synced=progress.synced,
            can_train=can_train,
        )


class Lead(Protocol):
    """Decides when the explorer begins a step, and when weights change."""

    def last_step(self, standing: Standing) -> int:
        """Return the explore step up to which all may begin, as long as nothing else changes."""

    def syncs_now(self, standing: Standing) -> bool:
        """Return whether the engines get the trainer's weights now."""

    def most_age(self, left: Left) -> int:
        """Return by how many optimizer steps weights can lag when what they made is trained."""


@dataclass(frozen=True)
class LeadOfExplorer:
    """The explorer takes newer weights between its steps: after ``interval`` of them.

    With ``interval`` 1 and ``most_open`` 1 step 2 begins with the weights of the beginning, beside
    the first optimizer step; step 3 then waits for that one:

    >>> lead = LeadOfExplorer(interval=1, most_open=1)
    >>> one = Standing(begun=1, explored=1, first_open=1, trained=0, pulled=0, can_train=True)
    >>> lead.syncs_now(one), lead.last_step(one)
    (False, 2)
    >>> two = Standing(begun=2, explored=2, first_open=2, trained=1, pulled=0, can_train=True)
    >>> lead.syncs_now(two), lead.last_step(two)
    (True, 2)
    """

    interval: int  # explore steps
    most_open: int  # steps before one that begins: L

    def last_step(self, standing: Standing) -> int:
        """Return what there is room for; where weights are newer, not beyond the next question."""
        last = _room(standing, most_open=self.most_open)
        if standing.trained == standing.pulled:
            return last
        after = max(standing.begun, standing.synced + 1)
        return min(last, -(-after // self.interval) * self.interval)

    def syncs_now(self, standing: Standing) -> bool:
        """Return whether the explorer asks now, and would begin a step with what it gets."""
        return (
            standing.begun == standing.explored > standing.synced
            and standing.explored % self.interval == 0
            and standing.trained > standing.pulled
            and _room(standing, most_open=self.most_open) > standing.explored
        )

    def most_age(self, left: Left) -> int:
        """Return it: what was open at the question, and the steps up to the next one.

        >>> lead, one = LeadOfExplorer(interval=2, most_open=1), Left(batch=8)
        >>> [lead.most_age(one.after(count)) for count in (8, 16, 4)]
        [2, 5, 1]
        """
        before = max(self.most_open * left.most, left.most_over)
        return max(0, before + self.interval * left.most - 1) // left.batch


@dataclass(frozen=True)
class LeadOfTrainer:
    """The trainer hands weights over after ``interval`` of its steps; explore steps go on.

    >>> lead = LeadOfTrainer(interval=2, most_open=1)
    >>> one = Standing(begun=2, explored=2, first_open=2, trained=1, pulled=0)
    >>> lead.syncs_now(one), lead.last_step(one)
    (False, 3)
    >>> two = Standing(begun=3, explored=2, first_open=3, trained=2, pulled=0)
    >>> lead.syncs_now(two), lead.last_step(two)
    (True, 4)
    """

    interval: int  # optimizer steps
    most_open: int  # steps before one that begins: L

    def last_step(self, standing: Standing) -> int:
        """Return what there is room for."""
        return _room(standing, most_open=self.most_open)

    def syncs_now(self, standing: Standing) -> bool:
        """Return whether an interval is full that the engines have not."""
        return standing.trained // self.interval > standing.pulled // self.interval

    def most_age(self, left: Left) -> int:
        """Return it: what was open when a step began, the step, and what engines had not got.

        >>> lead, one = LeadOfTrainer(interval=2, most_open=1), Left(batch=8)
        >>> [lead.most_age(one.after(count)) for count in (8, 16, 4)]
        [2, 4, 1]
        """
        before = max(self.most_open * left.most, left.most_over)
        return max(0, before + left.most - 1) // left.batch + self.interval - 1


def _room(standing: Standing, *, most_open: int) -> int:
    """Return the last step that may begin: one more where neither side could go on otherwise."""
    room = standing.first_open + most_open
    is_stuck = standing.begun == standing.explored and not standing.can_train
    return max(room, standing.explored + 1) if is_stuck else room


def lead_of(config: Config) -> Lead | None:
    """Return what decides in a run whose sides go on by themselves; None: they do not."""
    style, most_open = config.synchronizer.sync_style, config.explorer.max_inflight_batches - 1
    if style == "explorer_driven":
        return LeadOfExplorer(sync_interval_of(config), most_open)
    if style == "trainer_driven":
        return LeadOfTrainer(sync_interval_of(config), most_open)
    return None
