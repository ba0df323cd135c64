"""AgentScope's ready ReActAgent on mathematical questions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards import REWARD_FUNCTIONS, MathBoxedRewardFn
from trinity.common.rewards.calling import scores_of

from trinity_agents_agentscope.package import imported
from trinity_agents_agentscope.react_run import ReActRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.rewards import RewardFn

__all__ = ["AgentScopeReactMathWorkflow", "AgentScopeV0ReactMathWorkflow"]

SYSTEM_PROMPT = (
    "You solve mathematical questions. Where it helps, compute or check with Python by the tool "
    "execute_python_code. Give the final answer inside \\boxed{}."
)


class AgentScopeReactMathWorkflow(ReActRun):
    """A ReActAgent that may run Python answers; the boxed answer is compared with the truth.

    ``workflow_args``: ``max_iters``, the most calls of the model, 10; ``tool_timeout_s``, how long
    one program of the agent may take, 30. The taskset's reward function replaces
    ``MathBoxedRewardFn``, its ``format.system_prompt`` the prompt of this class.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"max_iters": 10, "tool_timeout_s": 30.0}

    async def ask(self, model: Any) -> str:  # Any: AgentScope's chat model
        """Return the agent's reply."""
        message = imported("agentscope.message").Msg("user", str(self.task.task_desc), role="user")
        reply = await self._agent(model).reply(message)
        return reply.get_text_content() or ""

    async def scores(self, answer: str) -> dict[str, float]:
        """Return what the reward function says of the reply."""
        offered = {
            "response": answer,
            "truth": self.task.truth,
            "prompt": self.task.task_desc,
            "task": self.task,
        }
        return scores_of(self._reward_fn(), offered=offered, options=self.task.reward_fn_args)

    def _agent(self, model: Any) -> Any:
        tool = imported("agentscope.tool")
        toolkit = tool.Toolkit()
        toolkit.register_tool_function(
            tool.execute_python_code, preset_kwargs={"timeout": self.arguments["tool_timeout_s"]}
        )
        return imported("agentscope.agent").ReActAgent(
            name="math_agent",
            sys_prompt=self.task.format_args.system_prompt or SYSTEM_PROMPT,
            model=model,
            formatter=imported("agentscope.formatter").OpenAIChatFormatter(),
            toolkit=toolkit,
            max_iters=self.arguments["max_iters"],
        )

    def _reward_fn(self) -> RewardFn:
        chosen = self.task.reward_fn or MathBoxedRewardFn
        return (REWARD_FUNCTIONS.get(chosen) if isinstance(chosen, str) else chosen)()


class AgentScopeV0ReactMathWorkflow(AgentScopeReactMathWorkflow):
    """The same with five calls of the model, as files for AgentScope 0 name it.

    The agent is that of AgentScope 1: its ReActAgent does what ReActAgentV2 did.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"max_iters": 5, "tool_timeout_s": 300.0}
