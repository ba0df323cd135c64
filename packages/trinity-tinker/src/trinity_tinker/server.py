"""Put a server together, start and end it."""

from __future__ import annotations

import asyncio
import fcntl
import secrets
from typing import IO, TYPE_CHECKING

from trinity.errors import DataError
from trinity_serve.endpoint.server import Server, listening_at

from trinity_tinker.app import build_app
from trinity_tinker.checkpoints import Checkpoints
from trinity_tinker.expiry import ServiceTimes
from trinity_tinker.run_states import RunStates
from trinity_tinker.samplers import Samplers
from trinity_tinker.sampling import Sampling
from trinity_tinker.service import Service
from trinity_tinker.store import Store
from trinity_tinker.training import Training

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from trinity_tinker.base_model import BaseModel

__all__ = ["TinkerServer"]


class TinkerServer:
    """A server in threads of its own. STARTED -> CLOSED.

    Args:
        bases: the models.
        folder: of all that is kept; made if missing.
        host: the address to listen at.
        port: 0: a free one.
        keys: of clients; none: one is made for this start.
        alpha: of all adapters.
        max_models: runs in memory.
        max_samplers: adapters in memory that are sampled.
        times: how long it waits for what.

    Raises:
        ConfigError: the address cannot be listened at.
        DataError: the folder's file cannot be used or is of models with other weights, or another
            server uses the folder.
    """

    def __init__(  # noqa: PLR0913 -- the options of a command
        self,
        bases: Sequence[BaseModel],
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        keys: Sequence[str] = (),
        alpha: int = 32,
        max_models: int = 8,
        max_samplers: int = 32,
        times: ServiceTimes | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _held(folder)
        store = Store(folder / "tinker.db")
        for base in bases:
            store.check_base(base.name, digest=base.digest)
        named = {base.name: base for base in bases}
        checkpoints = Checkpoints(store=store, folder=folder / "checkpoints")
        states = RunStates(store, bases=named, folder=folder / "runs", max_models=max_models)
        sampling = Sampling(
            store,
            checkpoints=checkpoints,
            bases=named,
            samplers=Samplers(max_adapters=max_samplers),
        )
        training = Training(
            store, checkpoints=checkpoints, states=states, alpha=alpha, publish=sampling.publish
        )
        self.key = keys[0] if keys else f"tml-{secrets.token_urlsafe(24)}"
        listening = listening_at(host, port, remedy="Choose another --port.")
        self._app = _Later()
        self._server = Server(self._app, listening=listening)
        shown = "127.0.0.1" if self._server.host in {"0.0.0.0", "::"} else self._server.host
        self.base_url = f"http://{shown}:{self._server.port}"

        async def start() -> Service:
            service = Service(
                store,
                bases=named,
                training=training,
                sampling=sampling,
                times=times or ServiceTimes(),
            )
            own_key = "" if keys else self.key
            self._app.inner = build_app(service, keys=keys, own_key=own_key)
            self._app.is_there.set()
            return service

        loop = self._server.loop
        self._service = asyncio.run_coroutine_threadsafe(start(), loop).result()

    def close(self) -> None:
        """End after what is being done; what waits is done at the next start."""
        closing = asyncio.run_coroutine_threadsafe(self._service.close(), self._server.loop)
        closing.result()
        self._server.close()
        self._lock.close()


def _held(folder: Path) -> IO[str]:
    """Return the lock of a folder; it is free again when this process ends, however it does.

    Raises:
        DataError: another server has it.
    """
    file = (folder / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise DataError(
            f"another server uses {folder}. End it, or choose another --data."
        ) from error
    return file


class _Later:
    """An application that lets requests wait until it is there."""

    def __init__(self) -> None:
        self.inner = None
        self.is_there = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.is_there.wait()
        assert self.inner is not None
        await self.inner(scope, receive, send)
