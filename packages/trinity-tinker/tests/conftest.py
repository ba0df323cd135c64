"""A server with a tiny model, in a folder in which clients find its tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from trinity_tinker.base_model import BaseModel
from trinity_tinker.expiry import ServiceTimes
from trinity_tinker.server import TinkerServer
from trinity_tinker.wire import message

NAME, KEY = "Qwen/Tiny", "tml-of-a-test"
TOKENS = [71, 104, 101, 32, 113, 117, 105, 99, 107]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trinity_testing.tiny import make_tiny_model

    folder = tmp_path_factory.mktemp("models")
    make_tiny_model(folder / NAME)
    return folder


@pytest.fixture
def base(models: Path) -> BaseModel:
    return BaseModel(NAME, str(models / NAME))


@pytest.fixture
def server(base: BaseModel, tmp_path: Path) -> Iterator[TinkerServer]:
    made = TinkerServer([base], tmp_path / "data", keys=[KEY], times=ServiceTimes(holds_s=2.0))
    yield made
    made.close()


class Client:
    """Sends what the SDK sends, and no more."""

    def __init__(self, base_url: str, *, key: str = KEY) -> None:
        import httpx

        self.http = httpx.Client(
            base_url=f"{base_url}/api/v1", headers={"X-API-Key": key}, timeout=60.0, verify=False
        )  # to read certificates takes longer than most tests

    def post(self, path: str, body: dict[str, Any], *, status: int = 200) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def session(self) -> str:
        return self.post("/create_session", {"tags": [], "sdk_version": "0.38.0"})["session_id"]

    def create(self, session: str, number: int = 0, **lora: Any) -> str:
        """Return the request of a new run."""
        body = {
            "session_id": session,
            "model_seq_id": number,
            "base_model": NAME,
            "lora_config": {"rank": 4, "seed": 1, **lora},
        }
        return self.post("/create_model", body)["request_id"]

    def model(self, session: str, number: int = 0, **lora: Any) -> str:
        return self.wait(self.create(session, number, **lora))["model_id"]

    def backward(self, model: str, seq: int, datums: list[dict[str, Any]], **how: Any) -> str:
        """Return the request of a pass; ``how``: loss, config, forward_only, is_packed."""
        raw = loss_request(model, seq, datums, **how).SerializeToString()
        headers = {"Content-Type": "application/x-protobuf"}
        if how.get("is_packed"):
            raw = zstandard.ZstdCompressor().compress(raw)
            headers["Content-Encoding"] = "zstd"
        answer = self.http.post("/forward_backward", content=raw, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["request_id"]

    def step(self, model: str, seq: int, **adam: float) -> str:
        body = {"model_id": model, "seq_id": seq, "adam_params": {"learning_rate": 1e-2, **adam}}
        return self.post("/optim_step", body)["request_id"]

    def sample(self, session: str, seq: int, tokens: list[int], **how: Any) -> str:
        params = {"max_tokens": 4, **how.pop("params", {})}
        chunk = {"type": "encoded_text", "tokens": tokens}
        body = {
            "sampling_session_id": session,
            "seq_id": seq,
            "prompt": {"chunks": [chunk]},
            "sampling_params": params,
            **how,
        }
        return self.post("/asample", body)["request_id"]

    def poll(self, request: str) -> Any:
        answer = self.http.post("/retrieve_future", json={"request_id": request})
        assert answer.status_code == 200, answer.text
        return answer

    def wait(self, request: str) -> dict[str, Any]:
        """Return the JSON of a request that went well."""
        found = self.answer(request).json()
        assert "error" not in found, found
        return found

    def answer(self, request: str) -> Any:
        answer = self.poll(request)
        while b'"try_again"' in answer.content:
            answer = self.poll(request)
        return answer

    def output(self, request: str, name: str = "ForwardBackwardOutput") -> Any:
        """Return the protobuf answer of a request."""
        answer = self.answer(request)
        assert answer.headers["content-type"] == "application/x-protobuf", answer.text
        made = message(name)
        made.ParseFromString(answer.content)
        return made

    def error(self, request: str) -> str:
        """Return why a request failed by its client's fault."""
        found = self.answer(request).json()
        assert found["category"] == "user"
        return found["error"]


def loss_request(model: str, seq: int, datums: list[dict[str, Any]], **how: Any) -> Any:
    request = message("ForwardBackwardRequest")
    request.model_id, request.seq_id = model, seq
    request.loss_fn = how.get("loss", "cross_entropy")
    request.forward_only = how.get("forward_only", False)
    for name, value in how.get("config", {}).items():
        request.loss_fn_config[name] = value
        request.loss_fn_config_v2[name].number = value
    for datum in datums:
        made = request.data.add()
        tokens = np.asarray(datum["tokens"], dtype="<i4").tobytes()
        made.model_input.add().encoded_text.tokens = tokens
        for name, value in datum.items():
            if name != "tokens":
                fill(made.loss_fn_inputs[name], value)
    return request


def fill(tensor: Any, value: Any) -> None:
    is_whole = np.asarray(value).dtype.kind == "i"
    array = np.asarray(value, dtype="<i8" if is_whole else "<f4")
    tensor.dtype, tensor.dense = 2 if is_whole else 1, array.tobytes()
    tensor.shape.extend(array.shape)


def a_datum(tokens: list[int] = TOKENS) -> dict[str, Any]:
    return {
        "tokens": tokens[:-1],
        "target_tokens": tokens[1:],
        "weights": [1.0] * (len(tokens) - 1),
    }


@pytest.fixture
def client(server: TinkerServer) -> Client:
    return Client(server.base_url)


@pytest.fixture
def make_client() -> type[Client]:
    return Client
