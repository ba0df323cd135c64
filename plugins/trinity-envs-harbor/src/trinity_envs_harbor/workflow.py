"""Let an agent work on a task of Harbor, then let the task's verifier say the reward.

row --task_dir--> files of the task --copy--> sandbox: agent --> sandbox: tests/test.sh --> reward
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import Workflow
from trinity.errors import BadTaskError, EnvError

from trinity_envs_harbor.environment import TaskEnvironment, opened
from trinity_envs_harbor.layout import images_for, task_sandbox
from trinity_envs_harbor.prepared import prepared
from trinity_envs_harbor.rewards import chosen, rolled_up
from trinity_envs_harbor.settings import HarborSettings
from trinity_envs_harbor.step_agent import StepAgent
from trinity_envs_harbor.step_loop import step_rewards

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows.task import Task

    from trinity_envs_harbor.container_workspace import PreparedImage
    from trinity_envs_harbor.prepared import Prepared

__all__ = ["HarborWorkflow"]


class HarborWorkflow(Workflow):
    """Runs the task in the row's ``task_dir``; its verifier's reward is that of the run.

    ``workflow_args``:
        agent: ``bash`` (the model's own commands) or ``command``.
        command: of agent ``command``: a list of words, run inside the sandbox, where
            ``OPENAI_BASE_URL`` leads to the model and nothing else is reached.
        binds: files and folders that the command reads, at their own paths.
        action: of agent ``bash``: ``tools`` (calls of the tool ``bash``), ``fenced`` (the last
            fenced block of a reply) or ``raw`` (a whole reply).
        max_env_steps: replies of the model, in each step; 30.
        resume_trajectory: agent ``bash`` has one conversation for all steps of a task, which is one
            experience; else one for each step.
        output_chars: of a command's output that the model sees; 4,000.
        images: what base images stand for, ``{python:3.11-slim: host}``.
        reward_key: which number of the verifier is the reward.
        sandbox: ``auto`` or ``bwrap``, in which base images stand for this machine's programs; or
            ``container``, in which docker or podman builds and runs the task's image.
        allow_network: of ``container``: tasks whose ``network_mode`` is public have the network.
    """

    needs_endpoint: ClassVar[bool] = True
    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"task_dir": str(Path(__file__).with_name("example"))},
        "other_raw_task": {"task_dir": str(Path(__file__).with_name("example"))},
        "workflow_args": {"images": {"*": "host"}, "action": "raw", "max_env_steps": 1},
    }

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self._lock = threading.Lock()
        self._environment: TaskEnvironment | None = None
        self._is_closed = False

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that no run could use.

        Raises:
            ConfigError: one is unknown or not what it must be, or there is no such sandbox here.
        """
        settings = HarborSettings.of(arguments)
        task_sandbox(settings.sandbox)

    def run(self) -> list[Experience]:
        """Return the experiences of one rollout, all with the verifier's reward.

        Raises:
            BadTaskError: the row names no task that runs here.
            EnvError: a sandbox failed, or the verifier gave no finite reward.
            WorkflowError: the agent asked nothing.
        """
        settings = HarborSettings.of(self.task.workflow_args)
        folder = self._folder()
        sandbox = task_sandbox(settings.sandbox)
        images = images_for(folder, settings.images)
        ready = prepared(
            folder,
            sandbox=sandbox,
            images=images,
            tasks=self._tasks(),
            digest=str(self.task.raw_task.get("digest") or ""),
            allow_network=settings.allow_network,
        )
        with opened(ready, sandbox, reward_key=settings.reward_key) as environment:
            self._hold(environment)
            agent = StepAgent(self.model, environment, settings, system=self._system())
            try:
                rewards = step_rewards(environment, agent.act)
            finally:
                self._hold(None)
        return self._rewarded(agent, rewards, ready, settings)

    def _rewarded(
        self,
        agent: StepAgent,
        by_step: list[dict[str, float]],
        ready: Prepared | PreparedImage,
        settings: HarborSettings,
    ) -> list[Experience]:
        """Return the experiences of all steps, with the reward of the task."""
        experiences = agent.experiences()
        rewards = rolled_up(by_step, is_final=ready.task.is_final)
        reward = chosen(rewards, settings.reward_key)
        for experience in experiences:
            experience.reward = reward
        named = {f"verifier/{name}": value for name, value in rewards.items()}
        experiences[-1].metrics |= {**named, **agent.metrics}
        experiences[-1].info |= {"harbor_task": ready.task.name, "harbor_digest": ready.digest}
        if len(ready.task.steps) > 1:
            experiences[-1].metrics["agent/steps"] = float(len(by_step))
            experiences[-1].info["harbor_steps"] = by_step
        return experiences

    def close(self) -> None:
        """End the command that runs, and with it the run."""
        with self._lock:
            self._is_closed, environment = True, self._environment
        if environment is not None:
            environment.stop()

    def _folder(self) -> Path:
        given = self.task.raw_task.get("task_dir") or self.task.raw_task.get("task_path")
        if not isinstance(given, str) or not given:
            raise BadTaskError(
                f"{self.task.origin} has no task_dir, the folder of a task. Write rows with: "
                f"trinity harbor rows FOLDER FILE"
            )
        return Path(given).expanduser()

    def _tasks(self) -> Path | None:
        """Return the folder of tasks that a row names, in which links of the task may lead.

        Without a digest it names none: who wrote the row has not read what the links lead to.
        """
        row = self.task.raw_task
        given = row.get("tasks_dir") if row.get("digest") else None
        return Path(given).expanduser() if isinstance(given, str) and given else None

    def _hold(self, environment: TaskEnvironment | None) -> None:
        with self._lock:
            self._environment, is_closed = environment, self._is_closed
        if is_closed and environment is not None:
            raise EnvError("its time was up before the agent began.")

    def _system(self) -> str:
        return self.task.format_args.system_prompt or ""
