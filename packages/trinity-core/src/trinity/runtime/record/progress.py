"""How far a run is, and what the next sync needs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trinity.common.metrics import Metrics

__all__ = ["Progress"]


@dataclass
class Progress:
    """How far a run is; a checkpoint holds it."""

    explored: int = 0  # explore steps
    trained: int = 0  # optimizer steps
    num_due: int = 0  # experiences that the trainer may train, and has not
    written: list[int] = field(default_factory=list)  # experiences of each step not yet due
    synced: int = 0  # the explore step after which the engines got weights last
    pulled: int = 0  # the optimizer steps that those weights had
    trained_experiences: int = 0
    evaluated: int = -1  # the explore step of the last evaluation,
    evaluated_trained: int = -1  # and the optimizer steps that its weights had
    first_evaluation: Metrics = field(default_factory=dict)
    evaluation: Metrics = field(default_factory=dict)  # the last

    def sync_point(self, *, interval: int, offset: int) -> int:
        """Return the last explore step after which the engines get weights; 0: none yet.

        >>> [Progress(explored=n).sync_point(interval=2, offset=1) for n in range(6)]
        [0, 0, 0, 3, 3, 5]
        """
        rounds = (self.explored - offset) // interval
        return offset + rounds * interval if rounds > 0 else 0

    def make_due(self, *, keep: int) -> None:
        """Make all that was explored due, but for the last ``keep`` steps."""
        num_ready = max(0, len(self.written) - keep)
        self.num_due += sum(self.written[:num_ready])
        self.written = self.written[num_ready:]

    def take_ahead(self, count: int) -> None:
        """Note that the first ``count`` experiences of steps not yet due are trained.

        >>> progress = Progress(written=[4, 4])
        >>> progress.take_ahead(6)
        >>> progress.written
        [0, 2]
        """
        for place, there in enumerate(self.written):
            taken = min(there, count)
            self.written[place] -= taken
            count -= taken

    def make_undue(self) -> None:
        """Count what is due among what was written: as of one step before the others."""
        if self.num_due:
            self.written.insert(0, self.num_due)
            self.num_due = 0

    def forget_trained(self) -> None:
        """Forget the oldest steps of which nothing is left.

        >>> progress = Progress(written=[0, 0, 2, 0])
        >>> progress.forget_trained()
        >>> progress.written
        [2, 0]
        """
        while self.written and not self.written[0]:
            del self.written[0]

    @property
    def num_waiting(self) -> int:
        """Return how many experiences of whole explore steps are not trained."""
        return self.num_due + sum(self.written)

    def note_evaluation(self, metrics: Metrics) -> None:
        """Remember how the model did that the engines have now."""
        self.evaluated, self.evaluated_trained = self.explored, self.pulled
        self.evaluation = metrics
        self.first_evaluation = self.first_evaluation or metrics

    @property
    def is_evaluated(self) -> bool:
        """Return whether the model that the engines have now was evaluated."""
        return (self.evaluated, self.evaluated_trained) == (self.explored, self.pulled)

    def copy(self) -> Progress:
        """Return the same progress, which later steps do not change."""
        return replace(self, written=list(self.written))

    def holds_as_much_as(self, other: Progress) -> bool:
        """Return whether weights and waiting experiences are those of ``other``.

        >>> Progress(written=[0]).holds_as_much_as(Progress())
        True
        """
        own, others = (
            (one.explored, one.trained, one.num_due, [left for left in one.written if left])
            for one in (self, other)
        )
        return own == others
