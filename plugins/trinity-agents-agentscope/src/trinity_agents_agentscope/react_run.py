"""A run of one of AgentScope's agents: each call of its model is an experience."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import Workflow
from trinity.errors import ConfigError, TrinityError, WorkflowError, did_you_mean

from trinity_agents_agentscope.chat_models import run_models, sampling_of
from trinity_agents_agentscope.package import check_installed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience

__all__ = ["ReActRun"]


class ReActRun(Workflow):
    """Lets an agent act; all its calls have the reward of the run, the last one its metrics.

    A subclass defines :meth:`ask` and :meth:`scores`.

    Class attributes:
        defaults: the arguments (``workflow_args``) that there are, with their values.

    Attributes:
        metrics: of the run, beside its scores; ``ask`` fills them.
    """

    needs_endpoint: ClassVar[bool] = True
    defaults: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse what is unknown.

        Raises:
            ConfigError: AgentScope is missing, or an argument is not known.
        """
        check_installed()
        for name in arguments:
            if name not in cls.defaults:
                hint = did_you_mean(name, cls.defaults)
                known = f"Known: {', '.join(cls.defaults)}." if cls.defaults else "It has none."
                raise ConfigError(
                    f"workflow_args.{name} is unknown to {cls.__name__}.{hint} {known}"
                )

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments, with their defaults."""
        return {**self.defaults, **self.task.workflow_args}

    async def ask(self, model: Any) -> Any:  # Any: AgentScope's chat model; what scores takes
        """Return what the agent answers."""
        raise NotImplementedError

    async def scores(self, answer: Any) -> dict[str, float]:  # Any: of ``ask``
        """Return the parts of the reward by name."""
        raise NotImplementedError

    async def run_async(self) -> list[Experience]:
        """Return an experience for each call of the model, each with the answer's reward."""
        self.metrics: dict[str, float] = {}
        sampling = sampling_of(self.task.rollout_args)
        async with run_models(self.model, auxiliary=(), sampling=sampling) as (model, _):
            answer = await self._asked(model)
        self.model.check_served()
        scores = await self.scores(answer)
        experiences = self.model.extract_experience_from_history()
        for experience in experiences:
            experience.reward = sum(scores.values(), 0.0)
        if experiences:
            last = experiences[-1]
            last.metrics = {**(last.metrics or {}), **scores, **self.metrics}
        return experiences

    async def _asked(self, model: Any) -> Any:
        try:
            return await self.ask(model)
        except TrinityError:
            raise
        except Exception as error:
            self.model.check_served()  # an engine's failure is not the agent's
            text = " ".join(str(error).split())
            raise WorkflowError(f"ReActAgent raised {type(error).__name__}: {text}") from error
