"""The port of a service."""

from __future__ import annotations

import json
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from trinity.errors import ConfigError
from trinity_serve.endpoint.service_frontend import ServiceFrontend
from trinity_serve.run_store import SqliteRunStore
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import model_over


def test_a_port_that_is_taken_is_told_with_its_setting() -> None:
    room = ServiceFrontend(host="127.0.0.1", port=0)
    port = urlsplit(room.url).port

    with pytest.raises(ConfigError, match=r"Address already in use. Set explorer.proxy_port to a"):
        ServiceFrontend(host="127.0.0.1", port=port)
    room.close()


def test_metrics_of_a_store_that_cannot_be_read_are_a_503_with_the_reason(tmp_path) -> None:
    store, room = SqliteRunStore(tmp_path / "serve.db"), ServiceFrontend(host="127.0.0.1", port=0)
    room.serve(
        [model_over(ScriptedEngine())], store=store, keys=["a-long-key"], logs_requests=False
    )
    room.open()
    store._db.execute("DROP TABLE runs")

    request = Request(f"{room.url}/metrics", headers={"Authorization": "Bearer a-long-key"})
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=10)
    room.close()
    store.close()

    assert refused.value.code == 503
    message = json.loads(refused.value.read())["error"]["message"]
    assert message.startswith("the service cannot read its store: ")
    assert "serve.db cannot be used: no such table: runs" in message
