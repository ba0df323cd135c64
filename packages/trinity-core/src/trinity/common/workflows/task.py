"""One task: a row of a dataset with all that running it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trinity.common.config.buffer import FormatConfig, GenerationConfig
from trinity.common.rows import NO_CELL, cell, no_such_key
from trinity.errors import DataError
from trinity.extend import get_manager

if TYPE_CHECKING:
    from trinity.common.models.model import ModelWrapper
    from trinity.common.rewards import RewardFn
    from trinity.common.workflows.recorded_env import Environments
    from trinity.common.workflows.workflow import Workflow

__all__ = ["Task"]


@dataclass(kw_only=True)
class Task:
    """What a workflow gets.

    Three levels say what a run does: ``workflow`` for all tasks, ``workflow_args`` for the tasks of
    one taskset, ``raw_task`` for this task alone.

    Attributes:
        workflow: the registered name of a workflow, or its class.
        reward_fn: the registered name of a reward function, or its class; None: the workflow's own.
        raw_task: the row as it was read, of any nesting.
        format_args: which key of the row holds what.
        rollout_args: how the model generates; ``n`` and ``temperature`` are always numbers.
        workflow_args: arguments of the workflow, the same for a whole taskset.
        reward_fn_args: arguments of the reward function.
        repeat_times: how many runs the workflow is asked to make.
        is_eval: whether the runs are an evaluation, never trained on.
        batch_id: the explore step.
        task_id: the position in the step; with ``batch_id`` it names the group.
        index: where the row comes from, ``{"taskset_id": 0, "index": 17}``.
        origin: the same for a person, ``tasks.jsonl, row 18``.
        environments: keeps or gives back what environments answer, for
            :func:`~trinity.common.workflows.recorded_env.recorded`; None: neither.
    """

    workflow: str | type[Workflow] = "simple_workflow"
    reward_fn: str | type[RewardFn] | None = None
    raw_task: dict[str, Any] = field(default_factory=dict)  # Any: somebody else's data
    format_args: FormatConfig = field(default_factory=FormatConfig)
    rollout_args: GenerationConfig = field(default_factory=GenerationConfig)
    workflow_args: dict[str, Any] = field(default_factory=dict)  # Any: may hold live objects
    reward_fn_args: dict[str, Any] = field(default_factory=dict)
    repeat_times: int = 1
    is_eval: bool = False
    batch_id: int | str = ""
    task_id: int | str = ""
    index: dict[str, int] = field(default_factory=dict)
    origin: str = "no dataset"
    environments: Environments | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.format_args, Mapping):
            self.format_args = FormatConfig(**self.format_args)
        if isinstance(self.rollout_args, Mapping):
            self.rollout_args = GenerationConfig(**self.rollout_args)
        if self.rollout_args.temperature is None:
            self.rollout_args = self.rollout_args.model_copy(update={"temperature": 1.0})

    @property
    def task_desc(self) -> str | None:
        """Return what the prompt key of the row holds.

        Raises:
            DataError: the row has no such key.
        """
        return self._value("prompt_key")

    @property
    def truth(self) -> str | None:
        """Return what the response key of the row holds; None where no row needs one.

        Raises:
            DataError: a response key was configured and the row does not have it.
        """
        is_default = self.format_args.response_key == FormatConfig().response_key
        if is_default and self.format_args.response_key not in self.raw_task:
            return None
        return self._value("response_key")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as it was read."""
        return self.raw_task

    def with_reward_class(self) -> Task:
        """Return the task with its reward function's class in place of the name.

        Raises:
            UnknownComponentError: nothing has the name.
        """
        if not isinstance(self.reward_fn, str):
            return self
        from trinity.common.rewards import REWARD_FUNCTIONS

        return replace(self, reward_fn=REWARD_FUNCTIONS.get(self.reward_fn))

    def to_workflow(
        self, model: ModelWrapper, auxiliary_models: Sequence[Any] | None = None
    ) -> Workflow:
        """Return a new instance of the workflow for this task, built by keyword."""
        named = self.workflow
        cls: type[Workflow] = (
            get_manager().load("workflow", named) if isinstance(named, str) else named
        )
        return cls(task=self, model=model, auxiliary_models=list(auxiliary_models or ()) or None)

    def _value(self, setting: str) -> str | None:
        key = getattr(self.format_args, setting)
        value: str | None = cell(self.raw_task, key)
        if value is NO_CELL:
            raise DataError(no_such_key(self.origin, key=key, row=self.raw_task, setting=setting))
        return value
