"""One environment of a server, held open over a websocket.

workflow --reset, step--> Session --{"type", "data"} as JSON--> /ws of the server
    <------Observation---------- <--{"type": "observation", "data"}--
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from trinity.errors import EnvError
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import connect

from trinity_envs_openenv.asked import LOOPBACK
from trinity_envs_openenv.observation import Observation

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["RefusedError", "Session"]

_MOST_BYTES = 100 << 20  # of a message: pictures are large
_OPENS_WITHIN_S = 10.0
_CLOSES_WITHIN_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_FULL = "CAPACITY_REACHED"
_INVALID = "VALIDATION_ERROR"


class RefusedError(Exception):
    """The environment takes no such action; the message says why."""


class _FullError(Exception):
    """The server holds as many environments as it may."""


class Session:
    """An environment of its own on the server.

    Args:
        url: of the server.
        timeout_s: of a reset or a step.
    """

    def __init__(self, url: str, *, timeout_s: float) -> None:
        self.url = url
        self._timeout_s = timeout_s
        self._socket: ClientConnection | None = None
        self._held = ExitStack()  # the connection
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Return whether it was given back."""
        return self._is_closed

    def reset(self, arguments: Mapping[str, Any], *, wait_s: float) -> Observation:
        """Begin an episode in a new environment.

        Args:
            arguments: of the environment's reset.
            wait_s: how long to wait where the server holds as many environments as it may.

        Raises:
            EnvError: no server answers, it has no room in time, or the reset failed.
        """
        until, pause = time.monotonic() + wait_s, _FIRST_PAUSE_S
        while True:
            self._connect()
            try:
                return self._observed("reset", arguments)
            except _FullError as error:
                self._disconnect()
                if time.monotonic() + pause > until:
                    raise EnvError(
                        f"the server at {self.url} had no room in {wait_s:g} s: {error}. Let it "
                        f"hold more environments at once (max_concurrent_envs of its create_app), "
                        f"or raise workflow_args.session_wait_s."
                    ) from error
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)

    def step(self, action: Mapping[str, Any]) -> Observation:
        """Act.

        Raises:
            RefusedError: the action is none of the environment's.
            EnvError: the environment failed, hung or is gone.
        """
        return self._observed("step", action)

    def close(self) -> None:
        """Give the environment back; safe to call twice, and from any thread."""
        self._is_closed = True
        self._disconnect()

    def _connect(self) -> None:
        if self._is_closed:
            raise EnvError("its time was up before the environment was reset.")
        parts = urlsplit(self.url)
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        target = urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}/ws", parts.query, ""))
        try:
            connection = connect(
                target,
                open_timeout=_OPENS_WITHIN_S,
                close_timeout=_CLOSES_WITHIN_S,
                max_size=_MOST_BYTES,
                compression=None,
                ping_interval=None,  # a step that takes long is ended by its own limit
                proxy=None if parts.hostname in LOOPBACK else True,
            )
            self._socket = self._held.enter_context(connection)
        except (OSError, WebSocketException) as error:
            raise EnvError(
                f"no OpenEnv server answers at {self.url}: {_in_words(error)}. Start it, or "
                f"correct workflow_args.url."
            ) from error

    def _disconnect(self) -> None:
        socket, self._socket = self._socket, None
        if socket is None:
            return
        with suppress(OSError, WebSocketException):
            socket.send(json.dumps({"type": "close"}))
        with suppress(OSError, WebSocketException):
            self._held.close()

    def _observed(self, kind: str, data: Mapping[str, Any]) -> Observation:
        answer = self._answered(kind, data)
        said = answer.get("data")
        if answer.get("type") == "error" and isinstance(said, Mapping):
            raise self._failure(kind, said)
        fields = said.get("observation") if isinstance(said, Mapping) else None
        if answer.get("type") != "observation" or not isinstance(fields, Mapping):
            raise EnvError(
                f"what answers at {self.url} is no OpenEnv server: its answer to {kind} is "
                f"{json.dumps(answer)[:200]}."
            )
        assert isinstance(said, Mapping)
        reward = said.get("reward")
        return Observation(
            fields=fields,
            reward=None if reward is None else float(reward),
            is_done=bool(said.get("done", False)),
        )

    def _answered(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        socket = self._socket
        if socket is None:
            raise EnvError(f"the environment at {self.url} was given back before its {kind}.")
        try:
            with suppress(ConnectionClosed):  # a server without room has answered, and is gone
                socket.send(json.dumps({"type": kind, "data": dict(data)}))
            answer = json.loads(socket.recv(timeout=self._timeout_s))
        except TimeoutError as error:
            raise EnvError(
                f"{kind} at {self.url} did not end in {self._timeout_s:g} s. Raise "
                f"workflow_args.timeout_s if it may take longer."
            ) from error
        except (ConnectionClosed, OSError) as error:
            raise EnvError(
                f"the server at {self.url} was lost during {kind}: {_in_words(error)}."
            ) from error
        except ValueError as error:
            raise EnvError(
                f"what answers at {self.url} is no OpenEnv server: its answer to {kind} is no JSON."
            ) from error
        return answer if isinstance(answer, dict) else {"data": answer}

    def _failure(self, kind: str, said: Mapping[str, Any]) -> Exception:
        code, message = said.get("code"), " ".join(str(said.get("message", "")).split())
        if code == _FULL:
            return _FullError(message)
        if code == _INVALID and kind == "step":
            return RefusedError(f"The environment refused that: {_faults(said) or message}.")
        return EnvError(
            f"{kind} failed at {self.url}: {message or 'it does not say why'} ({code})."
        )


def _faults(said: Mapping[str, Any]) -> str:
    """Return what is wrong with each field of an action."""
    errors = said.get("errors")
    found = errors if isinstance(errors, list) else []
    return "; ".join(
        f"{'.'.join(map(str, one.get('loc', ())))}: {one.get('msg')}"
        for one in found
        if isinstance(one, Mapping)
    )


def _in_words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
