"""One rollout's environment: where the agent works, and what verifies it afterwards."""

from __future__ import annotations

import logging
import shlex
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from trinity.errors import EnvError
from trinity_sandbox.supervise import bytes_in

from trinity_envs_harbor.prepared import limits_of
from trinity_envs_harbor.rewards import read_rewards
from trinity_envs_harbor.safe_files import (
    copied_inside,
    empty_folder,
    opened_up,
    plain_parts,
    read_inside,
    size_with_holes,
    written_inside,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from trinity_sandbox.base import CommandResult, Sandbox, Session

    from trinity_envs_harbor.prepared import Prepared
    from trinity_envs_harbor.task import TaskStep

__all__ = ["TaskEnvironment", "opened"]

logger = logging.getLogger(__name__)

_OUTPUT = "/logs/verifier/test-stdout.txt"
_TAIL = 2000  # characters of what a verifier printed, in a failure
_ARTIFACTS = "/logs/artifacts"
_OF_A_STEP = ("/logs/agent", _ARTIFACTS, "/logs/verifier", "/tests", "/solution")


class TaskEnvironment:
    """A copy of a task's files, in which commands run one after the other.

    Args:
        prepared: what it begins with.
        session: over the copy.
    """

    def __init__(self, prepared: Prepared, session: Session) -> None:
        self.prepared = prepared
        self.task = prepared.task
        self._session = session
        self._bytes_before = 0  # what the agent left is not the verifier's fault

    def run(
        self,
        command: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        binds: Sequence[tuple[Path, str]] = (),
        shown: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run one command, and end what it started.

        Args:
            command: a program and its arguments.
            timeout_s: until it is ended.
            env: further variables.
            binds: further files that it reads: on the host, and inside.
            shown: further places.

        Raises:
            EnvError: the sandbox could not be built.
        """
        limits = limits_of(self.task, timeout_s)
        session = replace(
            self._session,
            limits=replace(limits, disk_bytes=limits.disk_bytes + self._bytes_before),
            binds=(*self.prepared.binds, *binds),
            env={**self.prepared.env, **(env or {})},
            places={**self.prepared.places, **(shown or {})},
        )
        return session.run(command)

    def write(self, path: str, text: str) -> None:
        """Write a file, in place of what stands there."""
        written_inside(self._session.folder, path, text)

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None: there is none.

        Raises:
            EnvError: it is no file.
        """
        return read_inside(self._session.folder, path)

    def begin(self, step: TaskStep, *, is_first: bool) -> None:
        """Take away what verified the step before, and put the files of a step in place.

        Raises:
            EnvError: its ``setup.sh`` failed.
        """
        for path in () if is_first else _OF_A_STEP:
            empty_folder(self._session.folder, path)
        if step.files is None:
            return
        copied_inside(step.files, self._session.folder, self._session.workdir)
        if not (step.files / "setup.sh").is_file():
            return
        script = f"exec 2>&1; exec /usr/bin/env bash {shlex.quote(self._session.workdir)}/setup.sh"
        ended = self.run(["/bin/sh", "-c", script], timeout_s=step.agent_timeout_s)
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
        self._bring("solution", step.solution)
        return self.run(
            ["/bin/sh", "-c", "exec 2>&1; /solution/solve.sh"],
            timeout_s=step.agent_timeout_s,
            env=self.task.solution_env,
            shown={"/solution": "solution"},
        )

    def verify(self, step: TaskStep) -> dict[str, float]:
        """Return what a step's verifier says of what the agent left; its processes have ended.

        Rewards that are there already are deleted, and the tests are copied in now.

        Raises:
            EnvError: it took too long, or wrote no finite reward.
        """
        with self._verified(step) as environment:
            return environment._verify(step)

    def stop(self) -> None:
        """End the command that runs; from any thread."""
        self._session.stop()

    @contextmanager
    def _verified(self, step: TaskStep) -> Iterator[TaskEnvironment]:
        """Give where the verifier runs: here, or in new files with the artifacts of these."""
        if not step.is_separate:
            yield self
            return
        opened_up(self._session.folder)
        found = list(self._artifacts(step))
        with opened(self.prepared, self._session.sandbox, session=self._session) as other:
            for path, source in found:
                copied_inside(source, other._session.folder, path)
            yield other

    def _artifacts(self, step: TaskStep) -> Iterator[tuple[str, Path]]:
        """Yield the artifacts that are there: where they are seen, and on the host.

        Those from which on they are larger than the task's storage are left out: what the agent did
        is for the verifier to judge, and no failure of the environment.
        """
        left = self.task.storage_mb << 20
        for path in (_ARTIFACTS, *step.artifacts):
            source = _unlinked(self._session.folder, path)
            if source is None:
                continue
            left -= size_with_holes(source)
            if left < 0:  # files with holes, or with many names, take little before they are copied
                logger.warning(
                    "%s: %s is left out, as the artifacts are larger than its storage of %d MB.",
                    *(self.task.name, path, self.task.storage_mb),
                )
                return
            yield path, source

    def _verify(self, step: TaskStep) -> dict[str, float]:
        empty_folder(self._session.folder, "/logs/verifier")
        self._bring("tests", *step.tests)
        self._bytes_before = bytes_in(self._session.folder)
        ended = self.run(
            ["/bin/sh", "-c", f"exec > {_OUTPUT} 2>&1; /tests/test.sh"],
            timeout_s=step.verifier_timeout_s,
            env=step.verifier_env,
            shown={"/tests": "tests"},
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
            return read_rewards(self._session.folder)
        except EnvError as error:
            told = f"{name} (code {ended.exit}): {error}"
            raise EnvError(f"{told}{self._printed()}") from error

    def _bring(self, name: str, *sources: Path) -> None:
        """Copy folders in, each over those before it, in place of one of the agent's."""
        empty_folder(self._session.folder, name)
        for source in sources:
            copied_inside(source, self._session.folder, name)
        for script in (self._session.folder / name).glob("*.sh"):
            if not script.is_symlink():
                script.chmod(0o755)

    def _printed(self) -> str:
        try:
            written = self.read(_OUTPUT) or b""
        except EnvError:
            return ""
        text = written.decode(errors="replace").strip()[-_TAIL:]
        return f" It printed: {text or 'nothing'}"


@contextmanager
def opened(
    prepared: Prepared, sandbox: Sandbox, *, session: Session | None = None
) -> Iterator[TaskEnvironment]:
    """Give a new environment; all of it is deleted at the end.

    Args:
        prepared: what it begins with.
        sandbox: where commands run.
        session: of the agent, with which this one is stopped; None: of nobody.

    Raises:
        ConfigError: the sandbox cannot show a task's paths.
    """
    with sandbox.open(places=prepared.places, workdir=prepared.workdir) as own:
        copied_inside(prepared.files, own.folder, "/")
        stopped = {} if session is None else {"stopped": session.stopped}
        yield TaskEnvironment(prepared, replace(own, **stopped))


def _unlinked(root: Path, path: str) -> Path | None:
    """Return what stands at a path, if it is there and no folder above it is a link."""
    found = root
    for part in plain_parts(path):
        if found.is_symlink():
            return None
        found /= part
    return found if found.exists() or found.is_symlink() else None
