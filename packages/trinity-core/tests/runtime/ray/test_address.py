"""Which Ray is meant, and what must stand in the environment to speak to it."""

from __future__ import annotations

import socket

import pytest
from trinity.common.config import Config
from trinity.errors import TrinityError
from trinity.runtime.ray.address import cluster_address, ray_settings
from trinity.runtime.ray.head import Head, explained


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch, tmp_path):
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def head():
    """Return the address of something that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def note(tmp_path):
    """Return a function that notes an address as ``ray start --head`` does."""

    def write(address):
        (tmp_path / "ray").mkdir(exist_ok=True)
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)

    return write


def asking(address="auto"):
    return Config(cluster={"ray_address": address})


def test_without_any_cluster_one_is_started():
    assert cluster_address(asking()) == ""


def test_the_cluster_that_ray_start_noted_is_joined(note, head):
    note(head)
    assert cluster_address(asking()) == head


def test_a_noted_cluster_that_is_gone_counts_for_nothing(note):
    note("127.0.0.1:9")
    assert cluster_address(asking()) == ""


def test_the_environment_is_nearer_than_the_configuration(monkeypatch, head):
    monkeypatch.setenv("RAY_ADDRESS", head)
    assert cluster_address(asking("127.0.0.1:9")) == head


def test_the_word_local_starts_one_though_another_is_there(note, head):
    note(head)
    assert cluster_address(asking("local")) == ""


@pytest.mark.parametrize(
    ("address", "name"),
    [("127.0.0.1:9", "ray_unreachable"), ("ray://head:10001", "ray_client_address")],
)
def test_a_named_cluster_that_cannot_be_reached_is_one_clear_error(address, name, golden):
    with pytest.raises(TrinityError) as raised:
        cluster_address(asking(address))
    golden(str(raised.value), name)


def a_head(*, asks_for_token=False, is_here=False):
    return Head(address="10.0.0.1:6379", asks_for_token=asks_for_token, is_here=is_here)


def test_our_own_cluster_has_a_token_and_the_loopback_only():
    settings = ray_settings(None)
    assert settings["RAY_AUTH_MODE"] == "token"
    assert len(settings["RAY_AUTH_TOKEN"]) == 64
    assert settings == ray_settings(None)  # one token a process
    assert settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"


def test_the_users_token_is_used_where_there_is_one(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/secret")
    assert "RAY_AUTH_TOKEN" not in ray_settings(None)


@pytest.mark.parametrize(("asks", "mode"), [(True, "token"), (False, "disabled")])
def test_a_token_is_shown_where_the_cluster_asks_for_one_and_nowhere_else(monkeypatch, asks, mode):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x")
    assert ray_settings(a_head(asks_for_token=asks))["RAY_AUTH_MODE"] == mode


def test_only_a_cluster_of_the_loopback_is_kept_on_it():
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    assert name in ray_settings(a_head(is_here=True))
    assert name not in ray_settings(a_head(is_here=False))


@pytest.mark.parametrize(
    ("error", "native", "name"),
    [
        (RuntimeError("Version mismatch: Ray 2.49.0, not 2.60.0"), "", "ray_other_version"),
        (ConnectionError("Failed to connect"), "InvalidAuthToken: missing", "ray_no_token"),
        (ConnectionError("Failed to connect"), "", "ray_not_joined"),
    ],
)
def test_a_cluster_that_does_not_let_us_in_is_one_clear_error(error, native, name, golden):
    golden(explained(error, "10.0.0.1:6379", native=native), name)


def test_a_ray_that_cannot_be_started_says_what_else_there_is(golden):
    golden(explained(OSError("No space left"), "", native=""), "ray_not_started")
