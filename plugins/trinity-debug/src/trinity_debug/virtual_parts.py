"""Parts of a run on a virtual clock: the run's own buffer and sources; nothing computes."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trinity.common.sync_policy import policy_of
from trinity.explorer.rollout_buffer import RolloutBuffer
from trinity.runtime.group_storage import GroupStorage
from trinity.runtime.ready import ReadyGroups, ReadyRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.config import Config

__all__ = ["Rows", "VirtualParts"]


class Rows:
    """A storage of rows, each the number of the rollout that left it, as they were written."""

    gives_again = False

    def __init__(self) -> None:
        self.rows: deque[Any] = deque()

    def write(self, rows: Sequence[Any]) -> None:
        """Store the rows."""
        self.rows += rows

    def available(self) -> int:
        """Return how many can be read."""
        return len(self.rows)

    def read(self, count: int, *, timeout_s: float, min_model_version: int = 0) -> list[Any]:
        """Return up to so many, as they were written; it never waits."""
        taken = [self.rows.popleft() for _ in range(min(count, len(self.rows)))]
        self.rows += taken if self.gives_again else []
        return taken

    def put_back(self, rows: Sequence[Any]) -> None:
        """Store what was read last in its old place."""
        self.rows.extendleft(reversed(rows))

    def read_for(self, step: int) -> None:
        """Read the same for each step."""

    def counts(self) -> dict[str, int]:
        """Return nothing: no row is given up."""
        return {}


def _ignore(*_: object, **__: object) -> None:
    """Do nothing."""


class VirtualParts:
    """What a loop is made of; a subclass has ``sample``, ``train_step`` and ``synced``.

    Args:
        config: that the schedule reads.
        storage: of the rows.
        batch: rows of a train step; groups where the policy consumes groups.
        steps: rollout steps of the run.
        overlaps: whether rollouts may begin beside a train step, if the policy can.
    """

    stop_reason, is_in_order, has_evaluation = "", False, False
    num_train_steps: int | None = None

    def __init__(
        self, config: Config, storage: Any, *, batch: int, steps: int, overlaps: bool
    ) -> None:
        self.config, self.policy, self.writer = config, policy_of(config), self
        in_groups = self.policy.in_groups
        self.rollouts = RolloutBuffer(self.policy, batch=batch, gives_again=storage.gives_again)
        self.in_turns = not in_groups and not (overlaps and self.policy.can_overlap)
        self.loop: Any = None
        self.num_explore_steps = self.total_steps = steps
        self.display = SimpleNamespace(
            began=_ignore, explored=_ignore, trained=_ignore, evaluated=_ignore
        )
        self.interrupt: Any = SimpleNamespace(is_requested=False)
        self.info, self.in_hand = SimpleNamespace(stage=""), ()
        self.explorer: Any = self
        self.trainer: Any = self
        self.strategy: Any = self
        self.sync = SimpleNamespace(sync=self.synced)
        self.audit = SimpleNamespace(is_on=False, stepped=lambda metrics, step: metrics)
        self.observers: list[Any] = []
        self.groups: Any = None
        self.colocated: Any = None
        self.storage: Any = GroupStorage(storage) if in_groups else storage
        ready = ReadyGroups if in_groups else ReadyRows
        self.source: Any = ready(self.storage, self.rollouts)

    def synced(self, snapshot: object) -> int:
        """Take the time of a sync and return the policy version."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Return where the explorer stands."""
        return {"files": {}}

    # nothing is saved
    snapshot = save_progress = save = put_back_batch = staticmethod(_ignore)
