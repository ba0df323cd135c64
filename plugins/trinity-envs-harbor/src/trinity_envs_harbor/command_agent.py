"""An agent of somebody else, inside the sandbox, whose only network is the model's endpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trinity.errors import EnvError

from trinity_envs_harbor.forward import Forward, on_loopback
from trinity_envs_harbor.layout import python_bind
from trinity_envs_harbor.prepared import Prepared

if TYPE_CHECKING:
    from trinity.common.ports import Endpoint

    from trinity_envs_harbor.environment import TaskEnvironment
    from trinity_envs_harbor.settings import HarborSettings
    from trinity_envs_harbor.task import TaskStep

__all__ = ["AgentEnd", "run_command_agent"]

_OUTPUT = "/logs/agent/output.txt"
_SOCKET, _INSIDE = "/agent/model.sock", "/agent/inside.py"
_TAIL = 2000  # characters of what it printed, in a failure


@dataclass(frozen=True, kw_only=True)
class AgentEnd:
    """How an agent ended; whatever it was, its work is verified, as Harbor does.

    Attributes:
        is_late: its time was over.
        failure: the exit code, signal or limit that it failed by, and what it printed; "": none.
    """

    is_late: bool = False
    failure: str = ""


def run_command_agent(
    environment: TaskEnvironment, step: TaskStep, settings: HarborSettings, endpoint: Endpoint
) -> AgentEnd:
    """Run the command to its end for one step; return how it ended.

    It finds its model as any program does, by ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``
    (``ANTHROPIC_...`` too), the model's name in ``TRINITY_MODEL``, the instruction in the file
    ``TRINITY_INSTRUCTION_FILE`` and in place of the word ``{instruction}``, and the task as JSON in
    ``TRINITY_TASK_FILE``.

    Raises:
        EnvError: the sandbox could not be built, or the run was stopped.
    """
    task = environment.task
    row = {"name": task.name, "step": step.name, "instruction": step.instruction}
    environment.write("/logs/agent/task.json", json.dumps(row))
    environment.write("/logs/agent/instruction.md", step.instruction)
    words, binds = settings.agent_command()
    words = [step.instruction if word == "{instruction}" else word for word in words]
    port = urlsplit(endpoint.base_url).port or 8000
    packages = [at for _, at in binds if at.startswith("/agent/packages/")]
    env = {name: _inside(value, endpoint, port) for name, value in endpoint.env.items()}
    env |= {
        "TRINITY_MODEL": endpoint.model,
        "TRINITY_TASK_FILE": "/logs/agent/task.json",
        "TRINITY_INSTRUCTION_FILE": "/logs/agent/instruction.md",
        **({"PYTHONPATH": ":".join(packages)} if packages else {}),
    }
    assert isinstance(environment.prepared, Prepared)  # containers have no such agent
    _, programs = python_bind(environment.prepared.places)
    python = f"{programs}/python3"
    with Forward(endpoint.base_url) as forward:
        binds += [(forward.socket, _SOCKET), (Path(__file__).with_name("inside.py"), _INSIDE)]
        script = f'exec > {_OUTPUT} 2>&1; exec "$0" -ISB {_INSIDE} {port} {_SOCKET} "$@"'
        ended = environment.run(
            ["/bin/sh", "-c", script, python, *words],
            step=step,
            timeout_s=step.agent_timeout_s,
            env=env,
            binds=binds,
        )
    if ended.reason == "wall_time":
        return AgentEnd(is_late=True)
    if ended.reason == "stopped":
        raise EnvError(f"the agent was stopped.{_printed(environment)}")
    if not ended.reason and not ended.exit:
        return AgentEnd()
    how = f"signal {-ended.exit}" if ended.exit < 0 else f"code {ended.exit}"
    how = f"its limit of {ended.reason}" if ended.reason else how
    name = settings.command[0]
    return AgentEnd(failure=f"the agent {name!r} was ended by {how}.{_printed(environment)}")


def _inside(value: str, endpoint: Endpoint, port: int) -> str:
    return value if value == endpoint.key else on_loopback(value, port)


def _printed(environment: TaskEnvironment) -> str:
    try:
        written = environment.read(_OUTPUT) or b""
    except EnvError:
        return ""
    text = written.decode(errors="replace").strip()[-_TAIL:]
    return f" It printed: {text or 'nothing'}"
