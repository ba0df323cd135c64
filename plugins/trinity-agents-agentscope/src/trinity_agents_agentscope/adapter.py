"""The workflows that ``agentscope.tuner.tune`` and its predecessor name."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import Workflow
from trinity.errors import WorkflowError

from trinity_agents_agentscope.chat_models import run_models, sampling_of
from trinity_agents_agentscope.functions import UserFunction, user_function
from trinity_agents_agentscope.package import check_installed
from trinity_agents_agentscope.results import Judged, judged, rewarded, worked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience

    from trinity_agents_agentscope.chat_models import RunModels

__all__ = ["AgentScopeWorkflowAdapter", "AgentScopeWorkflowAdapterV1"]

FURTHER = ("auxiliary_models", "logger")


class _Adapter(Workflow):
    """Calls a function of the user with the task's row and a chat model; records its calls."""

    needs_endpoint: ClassVar[bool] = True

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse functions that could not be called.

        Raises:
            ConfigError: AgentScope is missing, or a function is none or has other parameters.
        """
        check_installed()
        _workflow_func(arguments)
        _judge_func(arguments)

    async def run_async(self) -> list[Experience]:
        """Return an experience for each call of the model, each with the run's reward."""
        function = _workflow_func(self.task.workflow_args)
        sampling = sampling_of(self.task.rollout_args)
        auxiliary = self.auxiliary_model_wrappers or []
        async with run_models(self.model, auxiliary=auxiliary, sampling=sampling) as models:
            try:
                result = await self.judged_run(function, models)
            except WorkflowError:
                self.model.check_served()  # an engine's failure is not the function's
                raise
        self.model.check_served()
        experiences = self.model.extract_experience_from_history()
        return rewarded(experiences, result, by=function)

    async def judged_run(self, function: UserFunction, models: RunModels) -> Judged:
        """Return how the run did."""
        raise NotImplementedError


class AgentScopeWorkflowAdapterV1(_Adapter):
    """Runs ``workflow_func`` and, if there is one, ``judge_func`` of ``workflow_args``.

    Each gets those of its arguments that its signature names:

    * ``workflow_func(task, model, auxiliary_models, logger) -> WorkflowOutput``
    * ``judge_func(task, response, auxiliary_models, logger) -> JudgeOutput``
    """

    async def judged_run(self, function: UserFunction, models: RunModels) -> Judged:
        """Return the reward and the metrics of both functions."""
        model, others = models
        row = deepcopy(self.task.raw_task)  # both functions see one, other runs another
        shared = {"task": row, "auxiliary_models": others, "logger": self.logger}
        output = worked(await function.called(model=model, **shared), by=function)
        judge = _judge_func(self.task.workflow_args)
        verdict = None
        if judge is not None:
            verdict = await judge.called(response=output.response, **shared)
        return judged(output, verdict, by=function, judge=judge)


class AgentScopeWorkflowAdapter(_Adapter):
    """Runs ``workflow_func(task, model)`` of ``workflow_args``, which returns its reward."""

    async def judged_run(self, function: UserFunction, models: RunModels) -> Judged:
        """Return the number that the function gives."""
        model, others = models
        returned = await function.called(
            task=deepcopy(self.task.raw_task),
            model=model,
            auxiliary_models=others,
            logger=self.logger,
        )
        if isinstance(returned, bool) or not isinstance(returned, (int, float)):
            raise WorkflowError(
                f"{function.label} returned a {type(returned).__name__}. Return its reward, a "
                "number; for a WorkflowOutput use agentscope_workflow_adapter_v1."
            )
        return Judged(reward=float(returned), metrics={})


def _workflow_func(arguments: Mapping[str, Any]) -> UserFunction:
    return user_function(arguments, "workflow_func", needed=("task", "model"), further=FURTHER)


def _judge_func(arguments: Mapping[str, Any]) -> UserFunction | None:
    if arguments.get("judge_func") is None:
        return None
    return user_function(arguments, "judge_func", needed=("task", "response"), further=FURTHER)
