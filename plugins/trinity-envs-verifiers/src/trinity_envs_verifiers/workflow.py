"""Let verifiers run a task with the model of the run; each call of it is an experience.

row --idx--> child process, where verifiers is --agent.run(task)--> its harness
                     |                                                  | HTTP
   reward, metrics <-+                   endpoint of the run <----------+
"""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trinity.common.workflows import Workflow
from trinity.errors import BadTaskError, EnvError, WorkflowError
from trinity.extend import environment_python

from trinity_envs_verifiers.child_process import Child, child_of
from trinity_envs_verifiers.environment import ENVIRONMENT
from trinity_envs_verifiers.settings import VerifiersSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trinity.common.experience import Experience
    from trinity.common.models.model import ModelWrapper
    from trinity.common.workflows.task import Task

__all__ = ["VerifiersWorkflow"]

_CUT = "context_length"


class VerifiersWorkflow(Workflow):
    """Runs the task that the row's ``idx`` names, and takes verifiers' reward and metrics.

    ``workflow_args``:
        taskset: the id of an installed taskset, the name of a module beside the configuration, or
            a file.
        config: of the taskset.
        harness: what runs the task: an id of verifiers (``null``, ``bash``, ...), or its
            configuration; ``direct`` asks once, without a process for each run. The taskset's own
            if it ships one, else ``direct``.
        agent: further fields of verifiers' ``AgentConfig``, such as ``max_turns`` and ``timeout``.
    """

    needs_endpoint: ClassVar[bool] = True
    conformance_args: ClassVar[dict[str, Any]] = {
        "raw_task": {"idx": 0},
        "other_raw_task": {"idx": 1},
        "workflow_args": {
            "taskset": str(Path(__file__).parent / "in_child" / "trinity_example.py")
        },
    }

    def __init__(
        self, *, task: Task, model: ModelWrapper, auxiliary_models: list[Any] | None = None
    ) -> None:
        super().__init__(task=task, model=model, auxiliary_models=auxiliary_models)
        self._state = threading.Lock()
        self._asked: tuple[Child, int] | None = None
        self._is_closed = False

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that no run could use.

        Raises:
            ConfigError: one is unknown, missing, or not what it must be.
            PluginError: the environment of verifiers is missing.
        """
        VerifiersSettings.of(arguments)
        environment_python(ENVIRONMENT)

    def run(self) -> list[Experience]:
        """Return an experience for each reply that verifiers got.

        Raises:
            ModelError: the engine failed.
            EnvError: verifiers or the taskset failed; the message names the task.
            WorkflowError: the task was scored, and no call reached the model.
        """
        settings = VerifiersSettings.of(self.task.workflow_args)
        number = self._number()
        what = f"verifiers, task {number} of {settings.taskset!r}"
        child = child_of(settings)
        endpoint = self.model.endpoint()
        asked = {
            "task": number,
            "base_url": endpoint.base_url,
            "key": endpoint.key,
            "model": endpoint.model,
        }
        try:
            told = self._answer(child, asked)
        except EnvError as error:
            raise EnvError(f"{what}: {error}") from error
        finally:
            self.model.check_served()  # what the taskset met is the engine's failure
        reward = _reward(told, what=what)
        return self._scored(told, reward=reward, what=what)

    def close(self) -> None:
        """End the run; its program goes with it."""
        with self._state:
            self._is_closed, asked = True, self._asked
        if asked is not None:
            child, number = asked
            child.cancel(number)

    def _number(self) -> int:
        number = self.task.raw_task.get("idx")
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise BadTaskError(
                f"the row has no idx, the number of a task of the taskset ({number!r}). Write rows "
                f"with: python -m trinity_envs_verifiers.rows TASKSET FILE"
            )
        return number

    def _answer(self, child: Child, asked: Mapping[str, Any]) -> dict[str, Any]:
        with self._state:
            if self._is_closed:
                raise EnvError("its time was up before it began")
            number, future = child.ask("run", asked)
            self._asked = child, number
        try:
            told: dict[str, Any] = future.result()
            return told
        finally:
            with self._state:
                self._asked = None

    def _scored(self, told: Mapping[str, Any], *, reward: float, what: str) -> list[Experience]:
        experiences = self.model.extract_experience_from_history()
        if not experiences:
            raise WorkflowError(f"{what}: it was scored, and no call reached the run's model.")
        for experience in experiences:
            experience.reward = reward
        last = experiences[-1]
        if told["stop"] == _CUT or (told["is_truncated"] and last.truncate_status is None):
            last.truncate_status = "response_truncated"
        numbers = {**told["rewards"], **told["metrics"], "num_turns": told["num_turns"]}
        last.metrics |= {name: float(value) for name, value in numbers.items()}
        return experiences


def _reward(told: Mapping[str, Any], *, what: str) -> float:
    """Return the reward of a run that ended well.

    Raises:
        EnvError: it did not, or was given none.
    """
    if not told["is_ok"]:
        errors = [f"{error['type']}: {error['message']}" for error in told["errors"]]
        said = "; ".join(errors) or f"it was stopped ({told['stop']})"
        raise EnvError(f"{what}: {' '.join(said.split())}")
    reward = told["reward"]
    if reward is None:
        raise EnvError(f"{what}: nothing rewards it. Give its Task a method with @vf.reward.")
    if not math.isfinite(reward):
        raise EnvError(f"{what}: its reward is {reward}. Let @vf.reward return a finite number.")
    return float(reward)
