"""How one run of a workflow ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Outcome", "RunFailure"]


class Outcome(Enum):
    """The end of a run. Only ``OK`` and ``TRUNCATED`` can carry a reward."""

    OK = "ok"
    TRUNCATED = "truncated"
    ENV_ERROR = "env_error"
    MODEL_ERROR = "model_error"
    WORKFLOW_ERROR = "workflow_error"
    TIMEOUT = "timeout"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFailure:
    """One failed run, as it is reported and counted; never trained on."""

    outcome: Outcome
    workflow: str  # the registered name, or module:Class
    plugin: str  # who provides the workflow, "trinity-core 0.1.0"
    task_id: str
    run: int
    message: str  # one line: error type and text
    where: str = ""  # file:line of the first frame that is the workflow's own; "" if there is none
    attempt: int = 1
    is_final: bool = False  # another attempt would end in the same way
    is_cut: bool = False  # nobody wanted to wait for it: it is no fault, and not counted as one

    def line(self) -> str:
        """Return the failure as one line for a person."""
        at = f" at {self.where}" if self.where else ""
        return (
            f"{self.outcome.value}: workflow {self.workflow!r} ({self.plugin}), "
            f"task {self.task_id}, run {self.run}, attempt {self.attempt}{at}: {self.message}"
        )
