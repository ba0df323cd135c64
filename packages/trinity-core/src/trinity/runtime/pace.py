"""Who decides when weights move, as plain decisions about a run's progress.

explore, explore, explore | train, train, sync | explore, ...
                          ^ a turn of the trainer

Between two syncs the explorer sees nothing of what is trained, so all of it is trained in one turn
right before the sync. Where both sides may work at once (``runtime/sides.py``), style ``fixed``
says what of the next turn is there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trinity.common.config import Config
    from trinity.runtime.record.progress import Progress

__all__ = ["Pace", "is_in_flight", "pace_of", "sync_interval_of"]


class Pace(Protocol):
    """Decides, between two explore steps."""

    def begin_turn(self, progress: Progress) -> bool:
        """Return whether it is the trainer's turn; what it may train is made due."""

    def num_needed(self, progress: Progress) -> int:
        """Return how many experiences must be there for a next optimizer step."""

    def syncs_now(self, progress: Progress, *, is_turn_over: bool) -> bool:
        """Return whether the engines get weights, after an optimizer step or the turn."""

    def num_ready(self, progress: Progress) -> int:
        """Return how many experiences the next turn will hold, whatever is explored until then."""

    def num_counted(self, progress: Progress) -> int:
        """Return the optimizer steps that decide whether the run has enough to explore on."""


@dataclass(frozen=True)
class Fixed:
    """Both sides meet after the explorer's steps o+i, o+2i, ...; the last batch may be short."""

    interval: int
    offset: int

    def begin_turn(self, progress: Progress) -> bool:
        """Return whether a sync point is reached; the last ``offset`` steps are kept back."""
        point = progress.sync_point(interval=self.interval, offset=self.offset)
        if point == progress.explored > progress.synced:
            progress.make_due(keep=self.offset)
        return progress.num_due > 0 or progress.synced < point

    def num_needed(self, progress: Progress) -> int:
        """Return 1: a short batch is trained too."""
        return 1

    def syncs_now(self, progress: Progress, *, is_turn_over: bool) -> bool:
        """Return whether the turn is over."""
        return is_turn_over

    def num_ready(self, progress: Progress) -> int:
        """Return what is written of the steps up to the next sync, but for the offset's.

        >>> from trinity.runtime.record.progress import Progress
        >>> [Fixed(1, 1).num_ready(Progress(explored=n, written=[4])) for n in (1, 2)]
        [4, 4]
        >>> Fixed(1, 2).num_ready(Progress(explored=3, written=[4, 4]))
        4
        """
        rounds = max(0, (progress.explored - self.offset) // self.interval)
        last = (rounds + 1) * self.interval  # the step up to which the next turn trains
        keep = max(0, progress.explored - last)
        return sum(progress.written[: max(0, len(progress.written) - keep)])

    def num_counted(self, progress: Progress) -> int:
        """Return those that the engines have: what is trained ahead ends no run earlier."""
        return progress.pulled


@dataclass(frozen=True)
class ByExplorer:
    """The explorer asks after every ``interval`` of its steps, and takes only a newer version."""

    interval: int
    batch_size: int

    def begin_turn(self, progress: Progress) -> bool:
        """Return whether the explorer asks now."""
        point = progress.sync_point(interval=self.interval, offset=0)
        if progress.synced >= point:
            return False
        progress.make_due(keep=0)
        return True

    def num_needed(self, progress: Progress) -> int:
        """Return the size of a whole batch."""
        return self.batch_size

    def syncs_now(self, progress: Progress, *, is_turn_over: bool) -> bool:
        """Return whether the turn is over and left newer weights."""
        return is_turn_over and progress.trained > progress.pulled

    def num_ready(self, progress: Progress) -> int:
        """Return 0: what a turn holds is decided when it begins."""
        return 0

    def num_counted(self, progress: Progress) -> int:
        """Return all of them."""
        return progress.trained


@dataclass(frozen=True)
class InFlight:
    """Groups are on their way all the time; a turn is one batch, whole groups of any length."""

    interval: int

    def begin_turn(self, progress: Progress) -> bool:
        """Return True: an explore step ends when there is a batch."""
        progress.make_due(keep=0)
        return True

    def num_needed(self, progress: Progress) -> int:
        """Return 1: what is due is one batch, short only at the end of the run."""
        return 1

    def syncs_now(self, progress: Progress, *, is_turn_over: bool) -> bool:
        """Return whether an interval of optimizer steps is full."""
        return progress.trained % self.interval == 0 and progress.trained > progress.pulled

    def num_ready(self, progress: Progress) -> int:
        """Return 0: the batch is trained while other groups are explored, none beside it."""
        return 0

    def num_counted(self, progress: Progress) -> int:
        """Return all of them."""
        return progress.trained


@dataclass(frozen=True)
class ByTrainer:
    """The trainer hands weights over after every ``interval`` of its own steps."""

    interval: int
    batch_size: int

    def begin_turn(self, progress: Progress) -> bool:
        """Return True: it looks for whole batches after each explore step."""
        progress.make_due(keep=0)
        return True

    def num_needed(self, progress: Progress) -> int:
        """Return what all steps up to the next sync read."""
        return self.batch_size * (self.interval - progress.trained % self.interval)

    def syncs_now(self, progress: Progress, *, is_turn_over: bool) -> bool:
        """Return whether an interval is full, or the rest of it was too old to be trained."""
        is_full = progress.trained % self.interval == 0
        is_cut_off = is_turn_over and not progress.num_due
        return (is_full or is_cut_off) and progress.trained > progress.pulled

    def num_ready(self, progress: Progress) -> int:
        """Return 0: what a turn holds is decided when it begins."""
        return 0

    def num_counted(self, progress: Progress) -> int:
        """Return all of them."""
        return progress.trained


def pace_of(config: Config, *, batch_size: int) -> Pace:
    """Return what decides in a run.

    Args:
        config: a resolved configuration.
        batch_size: how many experiences an optimizer step reads from the buffer.
    """
    sync, interval = config.synchronizer, sync_interval_of(config)
    if sync.sync_style == "explorer_driven":
        return ByExplorer(interval, batch_size)
    if sync.sync_style == "trainer_driven":
        return ByTrainer(interval, batch_size)
    if is_in_flight(config):
        return InFlight(interval)
    return Fixed(interval, sync.sync_offset)


def sync_interval_of(config: Config) -> int:
    """Return the steps between two syncs, counted by the side that decides."""
    sync = config.synchronizer
    own = {
        "explorer_driven": sync.explorer_sync_interval,
        "trainer_driven": sync.trainer_sync_interval,
    }
    return own.get(sync.sync_style) or sync.sync_interval


def is_in_flight(config: Config) -> bool:
    """Return whether groups begin one by one, and are trained while others are on their way."""
    return config.synchronizer.sync_style == "fully_async" and config.mode == "both"
