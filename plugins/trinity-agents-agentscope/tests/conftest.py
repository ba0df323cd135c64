"""A run of a workflow over a scripted engine, with the real endpoint in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.common.workflows import Task
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

SETTINGS = ModelSettings(
    model_path="scripted",
    max_model_len=16384,
    max_response_tokens=512,
    enable_openai_api=True,
    tool_call_parser="hermes",
)
ROW = {"question": "What is 40 + 6 ?", "answer": "46"}


@pytest.fixture(scope="session")
def room() -> Iterator[EndpointHost]:
    room = EndpointHost()
    yield room
    room.close()


@pytest.fixture
def model_over(room) -> Callable[..., ModelWrapper]:
    """Return what makes the model of a run of an engine."""

    def build(engine: ScriptedEngine, **settings: Any) -> ModelWrapper:
        key, chosen = RunKey(batch="1", task=0), replace(SETTINGS, **settings)
        return ModelWrapper(engine, script_chat_format(), chosen, key=key, endpoints=room)

    return build


@pytest.fixture
def run_of(model_over) -> Callable[..., list[Any]]:
    """Return what runs a workflow once on answers of a script, or on an engine."""

    def run(cls: type, *answers: Any, auxiliary: Any = None, **arguments: Any) -> list[Any]:
        engine = answers[0] if isinstance(answers[0], ScriptedEngine) else ScriptedEngine(*answers)
        format_args = {"prompt_key": "question", "response_key": "answer"}
        task = Task(raw_task=dict(ROW), workflow_args=arguments, format_args=format_args)
        model = model_over(engine)
        workflow = cls(task=task, model=model, auxiliary_models=auxiliary)
        try:
            return asyncio.run(workflow.run_async())
        finally:
            model.close_endpoints()

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
