"""What happens to experiences between a workflow and the buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.common.ports.tasks import RowValues


class ExperienceProcessor(Protocol):
    """Takes the experiences of an explore step on their way to the buffer."""

    def process(self, exps: list[Experience]) -> Metrics:
        """Write what is to be trained on; return metrics."""

    def feedback(self) -> dict[str, RowValues]:
        """Return what operators said of the tasks of the last call, by taskset."""

    def close(self) -> None:
        """Free what it holds."""


class OperatorPort(Protocol):
    """Filters or changes the experiences of an explore step. Made with its own arguments."""

    def process(self, exps: list[Experience]) -> tuple[list[Experience], Metrics]:
        """Return the experiences that go on, and metrics."""

    def close(self) -> None:
        """Free what the operator holds."""


ExperienceOperator = OperatorPort  # its name before 0.2
