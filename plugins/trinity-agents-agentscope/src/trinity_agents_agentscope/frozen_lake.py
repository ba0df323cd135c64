"""AgentScope's ReActAgent walks over a frozen lake, one move a reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity_compat_rft.workflows.frozen_lake import SYSTEM_PROMPT, action_of, lake_of, turn_text

from trinity_agents_agentscope.package import imported
from trinity_agents_agentscope.react_run import ReActRun

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FrozenLakeWorkflow"]


class FrozenLakeWorkflow(ReActRun):
    """The reward is 1 if the agent reaches the goal, else 0; each reply is an experience.

    The row's columns and the arguments are those of ``frozen_lake_workflow``, but for
    ``max_steps``: ``env_max_steps`` 8, ``agent_max_steps`` 10, ``is_slippery``, ``desc``.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "env_max_steps": 8,
        "agent_max_steps": 10,
        "is_slippery": False,
        "desc": None,
    }

    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"size": 3, "p": 0.9, "seed": 1},
        "workflow_args": {"agent_max_steps": 2},
    }

    async def ask(self, model: Any) -> float:  # Any: AgentScope's chat model
        """Return 1 if the walk ended at the goal."""
        lake = lake_of(self.task, self.arguments)
        agent, message = self._agent(model), imported("agentscope.message").Msg
        limit = int(self.arguments["agent_max_steps"])
        num_steps, reward, was_unmoved = 0, 0.0, False
        while num_steps < limit and not lake.is_over:
            text = turn_text(lake, num_steps, limit=limit, was_unmoved=was_unmoved)
            reply = await agent.reply(message("user", text, role="user"))
            before, action = lake.place, action_of(reply.get_text_content() or "")
            reward += lake.move(action) if action else 0.0
            was_unmoved = lake.place == before
            num_steps += 1
        self.metrics |= {"env_steps": float(num_steps), "env_done": float(lake.is_over)}
        return reward

    async def scores(self, answer: float) -> dict[str, float]:
        """Return the reward of the walk."""
        return {"final_reward": answer}

    def _agent(self, model: Any) -> Any:
        return imported("agentscope.agent").ReActAgent(
            name="frozenlake_agent",
            sys_prompt=self.task.format_args.system_prompt or SYSTEM_PROMPT,
            model=model,
            formatter=imported("agentscope.formatter").OpenAIChatFormatter(),
            max_iters=2,
        )
