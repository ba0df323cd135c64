"""A socket that leads to the endpoint of the run, and nowhere else.

agent --TCP, loopback of its own--> inside.py --unix socket--> Forward --TCP--> endpoint
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from trinity.errors import EnvError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Forward", "on_loopback"]

_MOST_CONNECTIONS = 64  # at one time
_CHUNK = 1 << 16
_STARTS_WITHIN_S = 10.0


class Forward:
    """Listens at a unix socket while the ``with`` block runs.

    Args:
        url: of the endpoint.

    Attributes:
        socket: where it listens.
        num_refused: connections beyond the most that are open at once.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._folder = tempfile.TemporaryDirectory(prefix="trinity-forward-")
        self.socket = Path(self._folder.name, "model.sock")
        self.num_refused = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="harbor-forward", daemon=True)
        self._is_up = threading.Event()
        self._failure: OSError | None = None
        self._stop: asyncio.Event = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Forward:
        self._thread.start()
        if not self._is_up.wait(_STARTS_WITHIN_S) or self._failure:
            self.__exit__(None, None, None)
            raise EnvError(f"no socket for the agent could be opened: {self._failure}.")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(RuntimeError):  # its loop has ended already
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STARTS_WITHIN_S)
        self._folder.cleanup()

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._served())
        except OSError as error:
            self._failure = error
        finally:
            self._is_up.set()
            self._loop.close()

    async def _served(self) -> None:
        server = await asyncio.start_unix_server(self._connected, str(self.socket))
        self.socket.parent.chmod(0o711)
        self.socket.chmod(0o666)  # a sandbox of root runs as another user
        self._is_up.set()
        await self._stop.wait()
        server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= _MOST_CONNECTIONS:
            self.num_refused += 1
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
            try:
                await asyncio.gather(_pumped(reader, back), _pumped(there, writer))
            finally:
                back.close()
        except OSError:
            return  # the client sees its connection end, as it would without this in between
        finally:
            self._open.discard(task)
            writer.close()


def on_loopback(url: str, port: int) -> str:
    """Return a URL as an agent reaches it inside.

    >>> on_loopback("http://10.0.0.4:41000/v1", 41000)
    'http://127.0.0.1:41000/v1'
    """
    return urlunsplit(urlsplit(url)._replace(netloc=f"127.0.0.1:{port}"))


async def _pumped(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while part := await source.read(_CHUNK):
        target.write(part)
        await target.drain()
    with suppress(OSError):
        target.write_eof()
