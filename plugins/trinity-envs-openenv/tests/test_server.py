"""A server that is gone is not taken for one that runs."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from trinity_envs_openenv import server


@pytest.fixture
def made():
    """Return a function: (port) -> a server whose process seems to run."""

    def make(port):
        one = object.__new__(server._Server)
        one.url = f"http://127.0.0.1:{port}"
        one._process = SimpleNamespace(is_running=True)
        return one

    return make


def test_a_server_runs_while_its_port_takes_connections(made) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = made(listening.getsockname()[1])
        assert one.is_running
    assert not one.is_running


def test_one_that_ended_does_not_run_whoever_has_its_port(made) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = made(listening.getsockname()[1])
        one._process.is_running = False
        assert not one.is_running


def test_a_server_is_there_when_it_answers_and_no_proxy_answers_for_it(made, monkeypatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as busy:  # 501 to every request
        threading.Thread(target=busy.serve_forever, daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            free = listening.getsockname()[1]
        proxy, nobody = made(busy.server_port), made(free)

        monkeypatch.setenv("http_proxy", proxy.url)
        assert not nobody._answers()
        monkeypatch.setenv("http_proxy", nobody.url)
        assert proxy._answers()
        busy.shutdown()
