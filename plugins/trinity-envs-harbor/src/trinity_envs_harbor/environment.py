"""One rollout's environment: where the agent works, and what verifies it afterwards."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trinity.errors import EnvError

from trinity_envs_harbor.rewards import read_rewards
from trinity_envs_harbor.workspace import Given

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from trinity_sandbox.base import CommandResult, Sandbox

    from trinity_envs_harbor.container_workspace import PreparedImage
    from trinity_envs_harbor.containers import ContainerClient
    from trinity_envs_harbor.prepared import Prepared
    from trinity_envs_harbor.task import TaskStep
    from trinity_envs_harbor.workspace import Workspace

__all__ = ["TaskEnvironment", "opened"]

_OUTPUT = "/logs/verifier/test-stdout.txt"
_TAIL = 2000  # characters of what a verifier printed, in a failure
_ARTIFACTS = "/logs/artifacts"
_OF_A_STEP = ("/logs/agent", _ARTIFACTS, "/logs/verifier", "/tests", "/solution")
_SHELL = '"$(command -v bash || command -v sh)"'


class TaskEnvironment:
    """A copy of a task's files, in which commands run one after the other.

    Args:
        prepared: what it begins with.
        workspace: over the copy.
        reward_key: which number of the verifier is wanted; "": ``reward``.
    """

    def __init__(
        self, prepared: Prepared | PreparedImage, workspace: Workspace, *, reward_key: str = ""
    ) -> None:
        self.prepared = prepared
        self._reward_key = reward_key
        self.task = prepared.task
        self._workspace = workspace

    def run(
        self,
        command: Sequence[str],
        *,
        step: TaskStep,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        binds: Sequence[tuple[Path, str]] = (),
    ) -> CommandResult:
        """Run one command of the agent of a step.

        Args:
            command: a program and its arguments.
            step: whose agent it is.
            timeout_s: until it is ended.
            env: further variables.
            binds: further files that it reads: on the host, and inside.

        Raises:
            EnvError: the command could not be started.
        """
        given = Given(env=env or {}, user=step.agent_user, binds=binds)
        return self._workspace.run(command, timeout_s=timeout_s, given=given)

    def run_script(self, text: str, *, step: TaskStep, timeout_s: float) -> CommandResult:
        """Run lines of the shell: bash, or sh where there is none; stderr goes with stdout."""
        self.write("/logs/agent/command.sh", text + "\n")
        command = ["/bin/sh", "-c", f"exec 2>&1; exec {_SHELL} /logs/agent/command.sh"]
        return self.run(command, step=step, timeout_s=timeout_s)

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of what stands there."""
        self._workspace.write(path, text)

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None: there is none.

        Raises:
            EnvError: it is no file.
        """
        return self._workspace.read(path)

    def begin(self, step: TaskStep, *, is_first: bool) -> None:
        """Take away what verified the step before, and put the files of a step in place.

        Raises:
            EnvError: its ``setup.sh`` failed.
        """
        for path in () if is_first else _OF_A_STEP:
            self._workspace.empty(path)
        if step.files is None:
            return
        workdir = self._workspace.workdir
        self._workspace.copy_in(step.files, workdir)
        if not (step.files / "setup.sh").is_file():
            return
        script = f"exec 2>&1; exec {_SHELL} {shlex.quote(workdir)}/setup.sh"
        ended = self.run(["/bin/sh", "-c", script], step=step, timeout_s=step.agent_timeout_s)
        if ended.exit or ended.reason:
            said = ended.stdout.decode(errors="replace").strip()[-_TAIL:]
            how = f"limit of {ended.reason}" if ended.reason else f"code {ended.exit}"
            raise EnvError(
                f"setup.sh of step {step.name} of {self.task.name} failed ({how}). It printed: "
                f"{said or 'nothing'}"
            )

    def solve(self, step: TaskStep) -> CommandResult:
        """Run the solution of a step, as its agent."""
        if step.solution is None:
            raise EnvError(f"step {step.name} has no solution/solve.sh.")
        self._bring("/solution", step.solution)
        return self._workspace.run(
            ["/bin/sh", "-c", "exec 2>&1; /solution/solve.sh"],
            timeout_s=step.agent_timeout_s,
            given=Given(
                env=self.task.solution_env, user=step.agent_user, shown={"/solution": "solution"}
            ),
        )

    def verify(self, step: TaskStep) -> dict[str, float]:
        """Return what a step's verifier says of what the agent left; its processes have ended.

        Rewards that are there already are deleted, and the tests are copied in now.

        Raises:
            EnvError: it took too long, or wrote no finite reward.
        """
        self._workspace.end_processes()
        if not step.is_separate:
            return self._verify(step)
        with self._workspace.another() as other:
            self._workspace.hand_over((_ARTIFACTS, *step.artifacts), other)
            separate = TaskEnvironment(self.prepared, other, reward_key=self._reward_key)
            return separate._verify(step)

    def stop(self) -> None:
        """End the command that runs; from any thread."""
        self._workspace.stop()

    def _verify(self, step: TaskStep) -> dict[str, float]:
        self._workspace.empty("/logs/verifier")
        self._bring("/tests", *step.tests)
        ended = self._workspace.run(
            ["/bin/sh", "-c", f"exec > {_OUTPUT} 2>&1; /tests/test.sh"],
            timeout_s=step.verifier_timeout_s,
            given=Given(
                env=step.verifier_env,
                user=step.verifier_user,
                shown={"/tests": "tests"},
                is_disk_free=True,  # what the agent left is not the verifier's fault
            ),
        )
        is_whole = len(self.task.steps) == 1
        name = f"the verifier of {'' if is_whole else f'step {step.name} of '}{self.task.name}"
        if ended.reason == "wall_time":
            raise EnvError(
                f"{name} did not end in {step.verifier_timeout_s:g} s. Raise "
                f"verifier.timeout_sec of its task.toml if it may take longer.{self._printed()}"
            )
        if ended.reason:
            raise EnvError(f"{name} was ended by its limit of {ended.reason}.{self._printed()}")
        try:
            return read_rewards(self.read, whose=name, key=self._reward_key)
        except EnvError as error:
            told = f"{name} (code {ended.exit}): {error}"
            raise EnvError(f"{told}{self._printed()}") from error

    def _bring(self, path: str, *sources: Path) -> None:
        """Copy folders in, each over those before it, in place of one of the agent's."""
        self._workspace.empty(path)
        for source in sources:
            self._workspace.copy_in(source, path)

    def _printed(self) -> str:
        try:
            written = self.read(_OUTPUT) or b""
        except EnvError:
            return ""
        text = written.decode(errors="replace").strip()[-_TAIL:]
        return f" It printed: {text or 'nothing'}"


@contextmanager
def opened(
    prepared: Prepared | PreparedImage,
    sandbox: Sandbox | ContainerClient,
    *,
    stopped: threading.Event | None = None,
    reward_key: str = "",
) -> Iterator[TaskEnvironment]:
    """Give a new environment; all of it is deleted at the end.

    Args:
        prepared: what it begins with.
        sandbox: where commands run.
        stopped: ends what runs, once it is set; None: :meth:`TaskEnvironment.stop` alone does.
        reward_key: which number of the verifier is wanted; "": ``reward``.

    Raises:
        ConfigError: the sandbox cannot show a task's paths.
    """
    with prepared.workspace(sandbox, stopped=stopped) as workspace:
        yield TaskEnvironment(prepared, workspace, reward_key=reward_key)
