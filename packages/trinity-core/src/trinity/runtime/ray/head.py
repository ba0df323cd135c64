"""What the head of a cluster says of itself before a run joins it.

One process that wants tokens in a cluster that has none refuses the cluster's own calls: Ray takes
it for dead, and cancels its rooms before they start. So a run asks whether there are tokens, and
does as the cluster does, whatever token lies in the home directory.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from trinity.errors import TrinityError
from trinity.runtime.environment import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER_TIMEOUT_S = 10.0

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_SET_TOKEN = (
    "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to the cluster's token; "
    "on its head, ray get-auth-token prints it. With RAY_ADDRESS=local the run starts its own Ray."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """A cluster that a run joins."""

    address: str  # host:port
    asks_for_token: bool
    is_here: bool  # all of its nodes have the loopback's address


def head_at(address: str) -> Head:
    """Return what the head that listens there says of itself.

    Args:
        address: host:port.

    Raises:
        TrinityError: it is no Ray, or has tokens where this process has none or the reverse.
    """
    mode = os.environ.get("RAY_AUTH_MODE")
    with native_lines() as native:
        try:
            asks, nodes = _asked(address, may_show_token=mode in {None, "token"})
        except Exception as error:
            raise TrinityError(explained(error, address, native=native())) from error
    if mode == "token" and not asks:
        raise TrinityError(
            f"the Ray cluster at {address} asks for no token, and RAY_AUTH_MODE=token is set here, "
            "which would refuse its calls. Unset RAY_AUTH_MODE, or start the cluster with "
            "RAY_AUTH_MODE=token."
        )
    return Head(address=address, asks_for_token=asks, is_here=nodes <= _LOOPBACK)


def _asked(address: str, *, may_show_token: bool) -> tuple[bool, set[str]]:
    """Return whether the head asks for a token, and the addresses of its nodes."""
    try:
        return False, _nodes(address, mode="disabled")
    except Exception as error:
        if not _is_about_token(str(error)) or not may_show_token or not _has_token():
            raise
    return True, _nodes(address, mode="token")


def _nodes(address: str, *, mode: str) -> set[str]:
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    with _speaking(mode):
        nodes = GcsClient(address=address).get_all_node_info(timeout=ANSWER_TIMEOUT_S)
        return {node.node_manager_address for node in nodes.values()}


@contextmanager
def _speaking(mode: str) -> Iterator[None]:
    try:
        with environment({"RAY_AUTH_MODE": mode}):
            read_settings_again()
            yield
    finally:
        read_settings_again()


def _has_token() -> bool:
    """Return whether this process has a token; Ray's C++ aborts where it is to show none."""
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

    return bool(AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True))


def _is_about_token(text: str) -> bool:
    return "authentication" in text.lower() or "authtoken" in text.lower()


def explained(error: Exception, address: str, *, native: str) -> str:
    """Return what went wrong between us and Ray, and what to do.

    Args:
        error: what Ray raised.
        address: of the cluster; empty: it was to be our own.
        native: what Ray's C++ wrote meanwhile, which knows more.
    """
    text = " ".join(str(error).split())
    known = f"{text} {error.__cause__} {native}"
    where = f"the Ray cluster at {address} cannot be joined" if address else "Ray cannot be started"
    if "mismatch" in known.lower():
        remedy = (
            "Run with the Python and the Ray that the cluster was started with, or restart the "
            "cluster with these."
        )
    elif _is_about_token(known):
        text = "the cluster asks for a token, and the one here is another or none"
        remedy = _SET_TOKEN
    elif address:
        remedy = (
            "See on its head whether it is alive: ray status. With RAY_ADDRESS=local the run "
            "starts its own Ray."
        )
    else:
        remedy = (
            "Free memory or space in the temporary folder, or run with --local, which needs no Ray."
        )
    return f"{where}: {text.rstrip('.')}. {remedy}"


@contextmanager
def native_lines() -> Iterator[Callable[[], str]]:
    """Keep what Ray's C++ writes on stderr while it connects; gives what reads it."""
    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield lambda: _text(kept)
        finally:
            os.dup2(before, 2)
            os.close(before)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def read_settings_again() -> None:
    """Let a Ray that was imported before read the environment as it is now."""
    try:
        from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
    except ImportError:  # a Ray without tokens
        return
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
