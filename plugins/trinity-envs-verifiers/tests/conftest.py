"""A run of the workflow over a scripted engine, with the real endpoint in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.common.workflows import Task
from trinity_envs_verifiers.child_process import close_children
from trinity_envs_verifiers.workflow import VerifiersWorkflow
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

SETTINGS = ModelSettings(
    model_path="scripted", max_model_len=16384, max_response_tokens=512, enable_openai_api=True
)


@pytest.fixture(scope="session")
def room() -> Iterator[EndpointHost]:
    room = EndpointHost()
    yield room
    room.close()


@pytest.fixture
def workflow_of(room) -> Iterator[Callable[..., VerifiersWorkflow]]:
    """Return what makes a workflow for a row, over an engine."""
    models = []

    def build(engine: ScriptedEngine, idx: Any = 0, **arguments: Any) -> VerifiersWorkflow:
        key = RunKey(batch="1", task=0)
        model = ModelWrapper(engine, script_chat_format(), SETTINGS, key=key, endpoints=room)
        models.append(model)
        task = Task(raw_task={"idx": idx}, workflow_args=arguments)
        return VerifiersWorkflow(task=task, model=model)

    yield build
    close_children()
    for model in models:
        model.close_endpoints()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
