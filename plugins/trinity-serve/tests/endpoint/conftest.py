"""A server with runs behind it, on the scripted engine."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Completion, Endpoint, GenerationRequest, RolloutEngine, RunKey
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

SETTINGS = ModelSettings(
    model_path="scripted", max_model_len=4096, max_response_tokens=512, enable_openai_api=True
)


@pytest.fixture(scope="session")
def room() -> Iterator[EndpointHost]:
    """One server for all tests: keys keep their runs apart."""
    room = EndpointHost()
    yield room
    room.close()


@pytest.fixture
def model_of(room: EndpointHost) -> Iterator[Callable[..., ModelWrapper]]:
    """Return what makes a run of an engine; its endpoints end with the test."""
    made: list[ModelWrapper] = []

    def build(engine: RolloutEngine | str, *more: str, **settings: object) -> ModelWrapper:
        engine = ScriptedEngine(engine, *more) if isinstance(engine, str) else engine
        key = RunKey(batch="3", task=7)
        chosen = replace(SETTINGS, **settings)
        made.append(ModelWrapper(engine, script_chat_format(), chosen, key=key, endpoints=room))
        return made[-1]

    yield build
    for model in made:
        model.close_endpoints()


class HeldEngine(ScriptedEngine):
    """Answers when it is let; its futures can be cancelled until then."""

    def __init__(self, *answers: str) -> None:
        super().__init__(*answers)
        self.held: list[tuple[GenerationRequest, Future[list[Completion]]]] = []
        self.has_request = threading.Event()

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        future: Future[list[Completion]] = Future()
        self.held.append((request, future))
        self.has_request.set()
        return future

    def let_go(self) -> None:
        """Answer what is held."""
        held, self.held = self.held, []
        self.has_request.clear()
        for request, future in held:
            if not future.cancelled():
                future.set_result(self._complete(request))


@pytest.fixture
def held_engine() -> type[HeldEngine]:
    return HeldEngine


@pytest.fixture
def asked() -> Callable[..., tuple[int, Any]]:
    """Return what sends a raw request; it gives the status and the body of the answer."""

    def send(
        endpoint: Endpoint, body: object, path: str = "/v1/chat/completions", **headers: str
    ) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = HTTPConnection(urlsplit(endpoint.base_url).netloc, timeout=20)
        given = {"Authorization": f"Bearer {endpoint.key}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("GET" if body is None else "POST", path, raw, given)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()

    return send


@pytest.fixture
def chat() -> Callable[..., dict[str, Any]]:
    """Return what makes the body of a chat."""

    def body(text: str = "hello", **fields: object) -> dict[str, Any]:
        return {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}

    return body
