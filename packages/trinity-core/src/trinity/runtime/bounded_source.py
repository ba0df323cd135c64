"""Let a sample strategy read what is due, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.runtime.group_shelf import GroupShelf
    from trinity.runtime.whole_storage import WholeStorage

__all__ = ["BoundedSource"]


class BoundedSource:
    """A source that hands out only as many experiences as were allowed.

    With style ``fixed`` the trainer trains, before a sync, exactly what was explored up to it: full
    batches and then a short one. What belongs to later steps stays in the buffer.

    A source that gives experiences again makes the short batch a full one: what is due says how
    many batches there are, and experiences of earlier steps fill them up.

    Args:
        source: the buffer.
        batch_size: how many experiences the trainer reads at once.
    """

    def __init__(self, source: WholeStorage | GroupShelf, *, batch_size: int = 1) -> None:
        self._source = source
        self._filled_to = batch_size if source.gives_again else 1
        self.num_due = 0  # experiences that may be read now

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Experience]:
        """Return up to ``count`` of the due experiences; it never waits for more.

        Raises:
            StopIteration: nothing is due, or what was due is too old.
        """
        if min_model_version > 0:
            self._source.drop_older(min_model_version)
        wanted = min(count, self.available())
        if wanted == 0:
            raise StopIteration
        experiences = self._source.read(
            wanted, timeout_s=timeout_s, min_model_version=min_model_version
        )
        # A source drops what is too stale while it reads; those are not due any more either.
        left = max(0, self.num_due - len(experiences))
        self.num_due = min(left, self._source.available())
        return experiences

    def put_back(self, experiences: Sequence[Experience]) -> None:
        """Give back what was read last and not used: it is due again."""
        self._source.put_back(experiences)
        self.num_due += len(experiences)

    def available(self) -> int:
        """Return how many experiences can be read now: the due ones, and what fills them up."""
        filled = -(-self.num_due // self._filled_to) * self._filled_to
        return min(filled, self._source.available())

    def read_for(self, step: int) -> None:
        """Tell the buffer which optimizer step reads from now on."""
        self._source.read_for(step)

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the run's checkpoint holds the buffer."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Accept the empty state."""
