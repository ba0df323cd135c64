"""An agent that is a command: a process group of its own, which ends with the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from trinity.common.workflows.leash import LeashedProcess
from trinity.errors import ConfigError, EnvError, WorkflowError

if TYPE_CHECKING:
    from trinity.common.workflows.workflow import Workflow

__all__ = ["AgentCommand"]

_TAIL_BYTES = 2000  # of what it printed, in the log and in a failure


class AgentCommand:
    """Runs the command and reads its result.

    Args:
        command: its words.

    Raises:
        ConfigError: it is no list of words, or the program is not there.
    """

    def __init__(self, command: Any) -> None:  # Any: a user's setting
        is_list = isinstance(command, (list, tuple)) and command
        if not is_list or not all(isinstance(word, (str, int, float)) for word in command):
            raise ConfigError(
                f"workflow_args.command is {command!r:.80}. Give a list of words, such as "
                f"[python, my_agent.py]."
            )
        words = [str(word) for word in command]
        self._words = [os.path.expanduser(one) if one.startswith("~/") else one for one in words]
        self._shown = " ".join(self._words)
        if self._words[0] in {"python", "python3"}:
            self._words[0] = sys.executable  # the one that this runs in
        if shutil.which(self._words[0]) is None:
            raise ConfigError(
                f"workflow_args.command: there is no program {self._words[0]!r}. Install it, or "
                f"give its path."
            )
        self._process: LeashedProcess | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def run(self, workflow: Workflow) -> Any:  # Any: what JSON holds
        """Return what the command wrote to its result file; None: nothing.

        Raises:
            EnvError: it could not be started, or was ended, by its run or by a signal.
            WorkflowError: it failed, or its result is no JSON.
        """
        with tempfile.TemporaryDirectory(prefix="trinity-agent-") as folder:
            task, result = Path(folder, "task.json"), Path(folder, "result.json")
            task.write_text(json.dumps(workflow.task.raw_task, default=str), encoding="utf-8")
            endpoint = workflow.model.endpoint()
            env = {
                **os.environ,
                **endpoint.env,
                "TRINITY_MODEL": endpoint.model,
                "TRINITY_TASK_FILE": str(task),
                "TRINITY_RESULT_FILE": str(result),
            }
            with Path(folder, "output").open("w+b") as output:
                code = self._run(env, output)
                if code:
                    raise self._failed(code, output)
                if told := _printed(output):
                    workflow.logger.info("the agent %.200r printed: %s", self._shown, told)
            return _result(result)

    def close(self) -> None:
        """End the command and all that it started; from any thread."""
        with self._lock:
            self._is_closed, process = True, self._process
        if process is not None:
            process.kill()

    def _run(self, env: dict[str, str], output: BinaryIO) -> int:
        try:
            process = LeashedProcess(
                self._words,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise EnvError(f"the agent {self._words[0]!r} cannot be started: {error}") from error
        try:
            return self._waited(process)
        finally:
            process.end()

    def _waited(self, process: LeashedProcess) -> int:
        with self._lock:
            self._process, is_closed = process, self._is_closed
        try:
            if is_closed:
                raise EnvError("its time was up before the agent began")
            return process.process.wait()
        finally:
            with self._lock:
                self._process = None

    def _failed(self, code: int, output: BinaryIO) -> WorkflowError | EnvError:
        told = _printed(output) or "nothing"
        if self._is_closed:
            return EnvError("the agent was ended with its run")
        if code < 0:
            how = f"signal {-code} ({signal.strsignal(-code)})"
            return EnvError(
                f"the agent {self._shown!r:.200} was ended by {how}: by another process, "
                f"or because there was no memory left. It printed: {told}"
            )
        return WorkflowError(
            f"the agent {self._shown!r:.200} ended with code {code}. It printed: {told}"
        )


def _printed(output: BinaryIO) -> str:
    """Return the end of what the command printed."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL_BYTES))
    return output.read().decode(errors="replace").strip()


def _result(file: Path) -> Any:
    """Return what the file holds.

    Raises:
        WorkflowError: it is no JSON.
    """
    if not file.exists():
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise WorkflowError(
            f"what the agent wrote to TRINITY_RESULT_FILE cannot be read: {error}. Write a number "
            f"or an object of JSON."
        ) from error
