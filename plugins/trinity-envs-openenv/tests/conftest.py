"""A run of the workflow over a scripted engine, in what a server of OpenEnv was recorded to say."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.workflows import Task
from trinity_envs_openenv import schema
from trinity_envs_openenv.workflow import OpenEnvWorkflow
from trinity_testing.engines import ScriptedEngine
from trinity_testing.tiny import make_tiny_tokenizer
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

RECORDED = Path(__file__).parent / "recorded"  # written by record.py from servers of OpenEnv
SETTINGS = ModelSettings(
    model_path="scripted",
    max_model_len=16384,
    max_response_tokens=512,
    tool_call_parser="hermes",
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


class ReplayServer:
    """Takes the messages of one of the recorded sessions, in their order, and no others.

    Attributes:
        url: where it is.
        received: each message but those that close, in the order of arrival.
        num_closed: how many sessions were closed as they should be.
        num_most: how many sessions it holds at once.
        may_answer: while it is not set, no answer is sent.
        loses_after: it drops the connection in place of this answer, counted from 1; 0: never.
        pages: how often each path was asked for.
    """

    def __init__(self, name: str) -> None:
        self.recorded = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
        self.received: list[dict[str, Any]] = []
        self.pages: dict[str, int] = {}
        self.num_most, self.num_open, self.loses_after = 64, 0, 0
        self.num_closed = 0
        self._num_answers = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._lock = threading.Lock()
        self._server = serve(self._session, "127.0.0.1", 0, process_request=self._page)
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._thread.join(10)

    def _page(self, connection: ServerConnection, request: Any) -> Any:
        self.pages[request.path] = self.pages.get(request.path, 0) + 1
        if request.path == "/ws":
            return None
        page = self.recorded["pages"].get(request.path)
        if page is None:
            return connection.respond(HTTPStatus.NOT_FOUND, '{"detail":"Not Found"}')
        return connection.respond(HTTPStatus.OK, json.dumps(page))

    def _session(self, connection: ServerConnection) -> None:
        with self._lock:
            has_room = self.num_open < self.num_most
            self.num_open += has_room
        if not has_room:
            connection.send(json.dumps(self.recorded["full"]))
            return
        try:
            self._answer(connection)
        except ConnectionClosed:
            return
        finally:
            with self._lock:
                self.num_open -= 1

    def _answer(self, connection: ServerConnection) -> None:
        alike = self.recorded["sessions"]
        for number, text in enumerate(connection):
            message = json.loads(text)
            if message == {"type": "close"}:
                self.num_closed += 1
                return
            self.received.append(message)
            alike = [s for s in alike if len(s) > number and s[number]["sent"] == message]
            assert alike, f"no recorded session has {message} as its message {number}"
            self._num_answers += 1
            if self._num_answers == self.loses_after:
                connection.socket.close()
                return
            self.may_answer.wait(10)
            connection.send(json.dumps(alike[0][number]["got"]))


@contextmanager
def replayed(name: str) -> Iterator[ReplayServer]:
    """Serve what was recorded under a name."""
    server = ReplayServer(name)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def echo() -> Iterator[ReplayServer]:
    """Serve what the environment of ``openenv init`` was recorded to say."""
    with replayed("echo") as server:
        yield server


@pytest.fixture
def adder() -> Iterator[ReplayServer]:
    """Serve what the environment of tools in ``served/adder`` was recorded to say."""
    with replayed("adder") as server:
        yield server


@pytest.fixture
def run_in(monkeypatch) -> Callable[..., tuple[Any, ScriptedEngine]]:
    """Return what runs the workflow once on answers of a script: its experience and the engine."""
    monkeypatch.setattr(schema, "_checked", set())
    chat_format = ChatFormat(make_tiny_tokenizer(chat_template=TEMPLATE))

    def run(
        *answers: str, row: Any = None, system: str = "", environments: Any = None, **arguments: Any
    ) -> Any:
        engine = ScriptedEngine(*answers)
        task = Task(
            raw_task={"question": "add", **(row or {})},
            workflow_args=arguments,
            format_args={"prompt_key": "question", "system_prompt": system or None},
            environments=environments,
        )
        model = ModelWrapper(engine, chat_format, SETTINGS)
        workflow = OpenEnvWorkflow(task=task, model=model)
        (experience,) = workflow.run()
        workflow.close()
        return experience, engine

    return run


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory) -> Path:
    from trinity_testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
