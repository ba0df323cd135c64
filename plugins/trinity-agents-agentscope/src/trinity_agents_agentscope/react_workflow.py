"""AgentScope's ReActAgent, asked for an answer with fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.errors import ConfigError

from trinity_agents_agentscope.react_agent import AgentScopeReActAgent
from trinity_agents_agentscope.react_run import ReActRun
from trinity_agents_agentscope.templates import TEMPLATE_MAP, Template

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AgentScopeReActWorkflow"]


class AgentScopeReActWorkflow(ReActRun):
    """An agent answers by a structure, which a reward function of its kind of task looks at.

    ``workflow_args``: ``type``, the kind: ``gsm8k``, or a name that you put into
    ``TEMPLATE_MAP``; ``max_iters``, the most calls of the model, 10.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"type": "gsm8k", "max_iters": 10}

    conformance_args: ClassVar[dict[str, Any]] = {"workflow_args": {"max_iters": 2}}

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse what is unknown, and a kind of task without template.

        Raises:
            ConfigError: AgentScope is missing, or an argument cannot be used.
        """
        super().check_arguments(arguments)
        _template_of(arguments.get("type", "gsm8k"))

    async def ask(self, model: Any) -> dict[str, Any]:  # Any: AgentScope's chat model
        """Return the fields of the agent's answer."""
        template = _template_of(self.arguments["type"])
        agent = AgentScopeReActAgent(
            openai_client=model.client,
            model_name=model.model_name,
            system_prompt=self.task.format_args.system_prompt or template.system_prompt,
            generate_kwargs=model.generate_kwargs,
            response_structure=template.response_structure,
            max_iters=self.arguments["max_iters"],
        )
        answer = await agent.reply(str(self.task.task_desc))
        self.metrics["react_memory_length"] = float(await agent.agent.memory.size())
        return answer

    async def scores(self, answer: Mapping[str, Any]) -> dict[str, float]:
        """Return what the reward function of the template says."""
        reward_fn = _template_of(self.arguments["type"]).reward_fn_cls(**self.task.reward_fn_args)
        said: Any = answer  # Any: a reward function of structures
        return reward_fn(response=said, truth=self.task.truth)


def _template_of(kind: str) -> Template:
    template = TEMPLATE_MAP.get(kind)
    if template is None:
        known = ", ".join(TEMPLATE_MAP)
        raise ConfigError(
            f"workflow_args.type is {kind!r}, for which there is no template. Use one of {known}, "
            f"or put yours into TEMPLATE_MAP."
        )
    return template
