"""Train any agent as it is: a function, or a command, that asks its model by HTTP.

::

    task --> agent (your code) --HTTP--> endpoint of the run --> engine
                 |                              |
                 +--> reward                    +--> one experience for each reply
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.rewards.calling import NOT_JUDGED
from trinity.common.workflows.simple import BaseSimpleWorkflow
from trinity.errors import ConfigError, JudgementCutError, WorkflowError, unknown_name

from trinity_serve.agent_command import AgentCommand
from trinity_serve.agent_function import AgentFunction
from trinity_serve.agent_result import AgentResult, result_of
from trinity_serve.late_errors import late_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.workflows.task import Task

__all__ = ["AgentWorkflow"]

_ARGUMENTS = ("agent", "command", "train")
_FILTERS = ("agents", "has_tools")


class AgentWorkflow(BaseSimpleWorkflow):
    """Runs an agent that was not written for Trinity, and makes its calls experiences.

    Its ``workflow_args`` are:

    * ``agent``: a function, or ``module:function``. It is called with those of ``task`` (the row),
      ``client``, ``async_client``, ``endpoint``, ``auxiliary_models`` and ``logger`` that its
      signature names.
    * ``command``: the words of a command in place of it. It finds its model in ``OPENAI_BASE_URL``
      and ``OPENAI_API_KEY`` (``ANTHROPIC_...`` too), its row in the JSON file
      ``TRINITY_TASK_FILE``, and may write what it returns to ``TRINITY_RESULT_FILE``.
    * ``train``: which exchanges are trained: ``{agents: [label, ...], has_tools: true}``; all.

    The agent returns a reward; or a dict with ``reward`` and further numbers, which become metrics;
    or a reward for each agent by its label; or nothing, where the taskset names a reward function,
    which is given the last reply.
    """

    needs_reward_fn: ClassVar[bool] = False
    needs_endpoint: ClassVar[bool] = True
    conformance_args: ClassVar[dict[str, Any]] = {
        "workflow_args": {"agent": f"{__name__}:ask_once"}
    }

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that no run could use.

        Raises:
            ConfigError: one is unknown or missing, or the function is not there.
        """
        _check_names(arguments, _ARGUMENTS, what="argument of agent_workflow")
        _check_names(arguments.get("train") or {}, _FILTERS, what="entry of workflow_args.train")
        _part(arguments)

    def reset(self, task: Task) -> None:
        """Become what a new instance for ``task`` would be."""
        self.task = task
        self.raw_task = task.raw_task
        self.reward_fn_args = task.reward_fn_args
        self.format_args = task.format_args
        self.system_prompt = self.reply_prefix = None  # the agent's own words
        self.agent = _part(task.workflow_args)
        if task.reward_fn is not None:
            self.truth, self.task_desc = task.truth, task.task_desc
            self.reward_fn, self.reward_call_args = self._reward_fn_of(task)

    def run(self) -> list[Experience]:
        """Return an experience for each reply that the agent got.

        Raises:
            ModelError: the engine failed, whatever the agent made of it.
            WorkflowError: the agent failed, asked nothing, or gave no reward.
        """
        late_errors.install()
        try:
            returned = self.agent.run(self)
        except (Exception, asyncio.CancelledError):
            self.model.check_served()  # what the agent met is the engine's failure
            raise
        self.model.check_served()
        experiences = self.model.extract_experience_from_history()
        result = result_of(returned)
        if not experiences:
            endpoint = self.model.endpoint()
            raise WorkflowError(
                f"no call reached the endpoint: base_url {endpoint.base_url} was given in "
                f"OPENAI_BASE_URL, and as client. Let the agent ask by one of them."
            )
        return self._scored(experiences, result)

    def close(self) -> None:
        """End the agent; what it started goes with it."""
        self.agent.close()

    def _scored(self, experiences: list[Experience], result: AgentResult) -> list[Experience]:
        kept = [one for one in experiences if self._is_wanted(one, result)]
        if not kept:
            labels = sorted({str(one.info.get("agent", "")) for one in experiences})
            raise WorkflowError(
                f"none of {len(experiences)} calls is to be trained; they came from the agents "
                f"{', '.join(map(repr, labels))}. Change workflow_args.train, or the labels that "
                f"rewards are returned for."
            )
        if result.reward is None and not result.by_agent:
            result = self._judged(experiences[-1], result)
        for experience in kept:
            self._give(experience, result)
        last = kept[-1]
        last.metrics |= {**result.metrics, "api/calls": float(len(experiences))}
        if num_late := late_errors.taken():
            last.metrics["api/late_errors"] = float(num_late)
        return kept

    def _is_wanted(self, experience: Experience, result: AgentResult) -> bool:
        wanted = self.task.workflow_args.get("train") or {}
        agent = experience.info.get("agent", "")
        if result.by_agent and agent not in result.by_agent:
            return False
        if wanted.get("agents") is not None and agent not in wanted["agents"]:
            return False
        return not wanted.get("has_tools") or bool(experience.tools)

    def _judged(self, last: Experience, result: AgentResult) -> AgentResult:
        if self.task.reward_fn is None:
            raise WorkflowError(
                "the agent returned no reward. Return a number, a dict with 'reward', or name a "
                "reward function as default_reward_fn_type of the taskset."
            )
        try:
            scores = self.reward_scores(last)
        except JudgementCutError as error:
            return replace(result, not_judged=str(error))
        metrics = {**result.metrics, **scores}
        return replace(result, reward=sum(scores.values(), 0.0), metrics=metrics)

    def _give(self, experience: Experience, result: AgentResult) -> None:
        if result.not_judged:
            experience.info[NOT_JUDGED] = result.not_judged
            return
        agent = str(experience.info.get("agent", ""))
        experience.reward = result.by_agent.get(agent, result.reward)
        if len(result.by_agent) > 1:  # the runs of a task are compared agent by agent
            experience.eid.task = f"{self.task.task_id}-{agent}"


def ask_once(task: dict[str, Any], client: Any) -> float:
    """Ask with the row's first value, and return how long the reply is: the smallest agent."""
    messages = [{"role": "user", "content": str(next(iter(task.values()), "hello"))}]
    reply = client.chat.completions.create(model=client.model_path, messages=messages)
    return float(len(reply.choices[0].message.content))


def _part(arguments: Mapping[str, Any]) -> AgentFunction | AgentCommand:
    """Return what runs the agent.

    Raises:
        ConfigError: it is neither a function nor a command, or both.
    """
    agent, command = arguments.get("agent"), arguments.get("command")
    if (agent is None) == (command is None):
        raise ConfigError(
            "agent_workflow needs workflow_args.agent (module:function) or workflow_args.command "
            "(a list of words), one of them."
        )
    return AgentFunction(agent) if agent is not None else AgentCommand(command)


def _check_names(given: Any, known: tuple[str, ...], *, what: str) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(unknown_name(what, str(name), known))
