"""AgentScope's ready ReActAgent on mathematical questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards import REWARD_FUNCTIONS, MathBoxedRewardFn
from trinity.common.rewards.calling import scores_of
from trinity.common.workflows import Workflow
from trinity.errors import ConfigError, TrinityError, WorkflowError, did_you_mean

from trinity_agents_agentscope.chat_models import run_models, sampling_of
from trinity_agents_agentscope.package import check_installed, imported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.rewards import RewardFn

__all__ = ["AgentScopeReactMathWorkflow"]

SYSTEM_PROMPT = (
    "You solve mathematical questions. Where it helps, compute or check with Python by the tool "
    "execute_python_code. Give the final answer inside \\boxed{}."
)
DEFAULTS = {"max_iters": 10, "tool_timeout_s": 30.0}


class AgentScopeReactMathWorkflow(Workflow):
    """A ReActAgent that may run Python answers; the boxed answer is compared with the truth.

    ``workflow_args``: ``max_iters``, the most calls of the model, 10; ``tool_timeout_s``, how long
    one program of the agent may take, 30. The taskset's reward function replaces
    ``MathBoxedRewardFn``, its ``format.system_prompt`` the prompt of this class.
    """

    needs_endpoint: ClassVar[bool] = True

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse what is unknown.

        Raises:
            ConfigError: AgentScope is missing, or an argument is not known.
        """
        check_installed()
        for name in arguments:
            if name not in DEFAULTS:
                hint = did_you_mean(name, DEFAULTS)
                raise ConfigError(
                    f"workflow_args.{name} is unknown to {cls.__name__}.{hint} "
                    f"Known: {', '.join(DEFAULTS)}."
                )

    async def run_async(self) -> list[Experience]:
        """Return an experience for each call of the model, each with the answer's reward."""
        sampling = sampling_of(self.task.rollout_args)
        async with run_models(self.model, auxiliary=(), sampling=sampling) as (model, _):
            answer = await self._answer(model)
        self.model.check_served()
        scores = self._scores(answer)
        experiences = self.model.extract_experience_from_history()
        for experience in experiences:
            experience.reward = sum(scores.values(), 0.0)
        if experiences:
            experiences[-1].metrics = {**(experiences[-1].metrics or {}), **scores}
        return experiences

    async def _answer(self, model: Any) -> str:  # Any: AgentScope's chat model
        message = imported("agentscope.message").Msg("user", str(self.task.task_desc), role="user")
        try:
            reply = await self._agent(model).reply(message)
        except TrinityError:
            raise
        except Exception as error:
            self.model.check_served()
            text = " ".join(str(error).split())
            raise WorkflowError(f"ReActAgent raised {type(error).__name__}: {text}") from error
        return reply.get_text_content() or ""

    def _agent(self, model: Any) -> Any:
        arguments = {**DEFAULTS, **self.task.workflow_args}
        tool = imported("agentscope.tool")
        toolkit = tool.Toolkit()
        toolkit.register_tool_function(
            tool.execute_python_code, preset_kwargs={"timeout": arguments["tool_timeout_s"]}
        )
        return imported("agentscope.agent").ReActAgent(
            name="math_agent",
            sys_prompt=self.task.format_args.system_prompt or SYSTEM_PROMPT,
            model=model,
            formatter=imported("agentscope.formatter").OpenAIChatFormatter(),
            toolkit=toolkit,
            max_iters=arguments["max_iters"],
        )

    def _scores(self, answer: str) -> dict[str, float]:
        offered = {
            "response": answer,
            "truth": self.task.truth,
            "prompt": self.task.task_desc,
            "task": self.task,
        }
        return scores_of(self._reward_fn(), offered=offered, options=self.task.reward_fn_args)

    def _reward_fn(self) -> RewardFn:
        chosen = self.task.reward_fn or MathBoxedRewardFn
        return (REWARD_FUNCTIONS.get(chosen) if isinstance(chosen, str) else chosen)()
