"""Which Ray is meant, and what must stand in the environment to speak to it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from trinity.common.config import Config
from trinity.errors import TrinityError
from trinity.runtime.ray import address
from trinity.runtime.ray.address import Owners, cluster_address, ray_settings
from trinity.runtime.ray.cluster import HeadNode, explained


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


class Owned(Owners):
    """Says of each thing whose it is."""

    me = 1000

    def __init__(self, *, note=1000, listener=frozenset({1000}), is_open=False):
        self.note, self.listener, self.is_open = note, listener, is_open

    def of_file(self, path):
        return self.note

    def others_may_write(self, path):
        return self.is_open

    def of_listener(self, address):
        return self.listener


@pytest.mark.parametrize(
    ("owned", "why"),
    [
        (Owned(note=1001), "the note belongs to user 1001"),
        (Owned(is_open=True), "other users may change the note"),
        (Owned(listener={1001}), "a process of user 1001 listens there"),
        (Owned(listener={1000, 1001}), "a process of user 1001 listens there"),
        (Owned(listener=set()), "no process of this machine listens there"),
    ],
)
def test_a_noted_cluster_of_another_user_is_not_joined_and_that_is_said(
    note, head, tmp_path, owned, why
):
    note(head)
    said = []

    assert cluster_address(asking(), say=said.append, owners=owned) == ""
    assert said == [
        f"the Ray cluster at {head}, which {tmp_path}/ray/ray_current_cluster names, is not "
        f"joined: {why}. To join it, set cluster.ray_address: {head}; this run starts its own Ray."
    ]


@pytest.mark.parametrize("listener", [{1000}, None])
def test_where_the_system_does_not_tell_who_listens_the_note_decides(note, head, listener):
    note(head)

    assert cluster_address(asking(), owners=Owned(listener=listener)) == head


def test_a_cluster_that_the_user_names_is_joined_whosever_it_is(head):
    assert cluster_address(asking(head), owners=Owned(note=1, listener={1})) == head


@pytest.mark.parametrize("text", ["", "head", "http://head:1", "head:99999", "head:²"])
def test_a_note_that_is_no_address_counts_for_nothing(note, text):
    note(text)
    assert cluster_address(asking()) == ""


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs /proc/net/tcp: Linux")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_system_tells_who_listens(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)

        assert Owners().of_listener(f"[{name}]:{port}") == {Owners.me}
    assert Owners().of_listener(f"[{name}]:{port}") == set()


def test_who_listens_on_another_machine_is_not_told():
    assert Owners().of_listener("192.0.2.1:6379") is None  # an address that no machine has


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away: run as root")
def test_a_note_that_was_given_away_is_refused(note, head, tmp_path):
    note(head)
    os.chown(tmp_path / "ray" / "ray_current_cluster", 12345, -1)

    assert cluster_address(asking()) == ""


def test_a_note_that_all_may_write_is_refused(note, head, tmp_path):
    note(head)
    (tmp_path / "ray" / "ray_current_cluster").chmod(0o666)

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
    return HeadNode(address="10.0.0.1:6379", asks_for_token=asks_for_token, is_here=is_here)


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


def test_a_ray_that_somebody_stopped_while_it_started_is_not_blamed_on_memory() -> None:
    error = RuntimeError("Failed to start GCS")

    said = explained(error, "", native="", stopped="its raylet was stopped by SIGTERM")

    assert said == (
        "Ray cannot be started: its raylet was stopped by SIGTERM while it started. See who "
        "stopped it (ray stop, kill, a time limit); then run the command again."
    )


def test_gloo_and_nccl_use_the_interface_of_the_nodes_address_unless_another_is_named(
    monkeypatch,
) -> None:
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "eth9")  # and as it was after the test
    monkeypatch.setattr(address, "node_address", lambda: "127.0.0.1")

    address.use_own_interface()
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]) == ("eth9", "eth9")

    del os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]
    address.use_own_interface()
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"]) == ("lo", "=lo")


def test_nccl_chooses_by_itself_where_only_the_interface_of_gloo_is_named(monkeypatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth9")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(address, "node_address", lambda: "127.0.0.1")

    address.use_own_interface()

    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth9"
    assert "NCCL_SOCKET_IFNAME" not in os.environ
