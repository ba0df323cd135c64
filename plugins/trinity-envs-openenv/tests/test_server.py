"""A server that is gone is not taken for one that runs."""

import socket
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
