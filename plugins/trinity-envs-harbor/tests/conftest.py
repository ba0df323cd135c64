"""Tasks that tests write, and a run of the workflow over a scripted engine."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.workflows import Task
from trinity_envs_harbor import rewards
from trinity_envs_harbor.layout import missing_sandbox
from trinity_envs_harbor.prepared import forget_prepared
from trinity_envs_harbor.safe_files import read_inside
from trinity_envs_harbor.workflow import HarborWorkflow
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.engines import ScriptedEngine
from trinity_testing.tiny import make_tiny_tokenizer

SETTINGS = ModelSettings(
    model_path="scripted",
    max_model_len=16384,
    max_response_tokens=512,
    tool_call_parser="hermes",
    enable_openai_api=True,
)
TEMPLATE = """
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' + message.content -}}
{%- for call in message.tool_calls or [] -%}
{{- '<tool_call>\n' + call.function | tojson + '\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""
TOML = """
schema_version = "1.4"

[agent]
timeout_sec = {agent_s}

[verifier]
timeout_sec = {verifier_s}

[environment]
docker_image = "debian"
workdir = "/app"
memory_mb = 512
storage_mb = 16
network_mode = "none"
"""
IS_HELLO = """
#!/bin/sh
if [ "$(cat /app/greeting.txt)" = hello ]; then reward=1; else reward=0; fi
echo $reward > /logs/verifier/reward.txt
"""


MISSING = missing_sandbox() or ""
needs_bwrap = pytest.mark.skipif(bool(MISSING), reason=MISSING or "a sandbox is here")


@pytest.fixture(scope="session", autouse=True)
def _prepared_files_are_deleted() -> Iterator[None]:
    yield
    forget_prepared()


@pytest.fixture
def a_task(tmp_path) -> Callable[..., Path]:
    """Return what writes a task's folder."""

    def write(
        test: str = IS_HELLO,
        *,
        toml: str = "",
        agent_s: float = 20,
        verifier_s: float = 20,
        name: str = "task",
        **files: str,
    ) -> Path:
        """Write it; the names of further files have ``__`` for ``/``."""
        folder = tmp_path / "tasks" / name
        given = {
            "task.toml": toml or TOML.format(agent_s=agent_s, verifier_s=verifier_s),
            "instruction.md": "Write hello into greeting.txt.\n",
            "tests/test.sh": textwrap.dedent(test).lstrip(),
            "solution/solve.sh": "#!/bin/sh\necho hello > /app/greeting.txt\n",
            **{path.replace("__", "/"): textwrap.dedent(text) for path, text in files.items()},
        }
        for path, text in given.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        return folder

    return write


@pytest.fixture(scope="session")
def host() -> Iterator[EndpointHost]:
    """One server of endpoints for all tests."""
    opened = EndpointHost()
    yield opened
    opened.close()


@pytest.fixture
def workflow_of(host) -> Iterator[Callable[..., tuple[HarborWorkflow, ScriptedEngine]]]:
    """Return what makes the workflow of a task's folder, over answers of a script."""
    chat_format = ChatFormat(make_tiny_tokenizer(chat_template=TEMPLATE))
    models: list[ModelWrapper] = []

    def build(
        folder: Path, *answers: str, system: str = "", row: Any = None, **arguments: Any
    ) -> tuple[HarborWorkflow, ScriptedEngine]:
        engine = ScriptedEngine(*answers)
        task = Task(
            raw_task={"task_dir": str(folder), **(row or {})},
            workflow_args={"images": {"*": "host"}, **arguments},
            format_args={"prompt_key": "instruction", "system_prompt": system or None},
        )
        models.append(ModelWrapper(engine, chat_format, SETTINGS, endpoints=host))
        return HarborWorkflow(task=task, model=models[-1]), engine

    yield build
    for model in models:
        model.close_endpoints()


@pytest.fixture
def run_task(workflow_of) -> Callable[..., Any]:
    """Return what runs the workflow once: its experiences and the engine."""

    def run(folder: Path, *answers: str, **arguments: Any) -> tuple[list[Any], ScriptedEngine]:
        workflow, engine = workflow_of(folder, *answers, **arguments)
        try:
            return workflow.run(), engine
        finally:
            workflow.close()

    return run


def read_rewards(root: Path, **given: str) -> dict[str, float]:
    """Return the rewards in the folder of ``/``."""
    return rewards.read_rewards(lambda path: read_inside(root, path), **given)


def call(command: str) -> str:
    """Return a reply that calls the tool."""
    import json

    asked = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"<tool_call>\n{asked}\n</tool_call>"
