"""Listen at a port of this sandbox for an agent, lead it to a unix socket, and become the agent.

Run inside as ``python -ISB inside.py PORT SOCKET PROGRAM ARGUMENTS...``, with the standard library
alone.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
from contextlib import suppress

__all__ = ["main"]

_CHUNK = 1 << 16
_MOST_CONNECTIONS = 64  # that lead on at one time, as in forward.py; further ones wait
_OWN_FILES = 16  # that the child has open beside two for each connection
_RETRIES_AFTER_S = 0.05


def main(port: int, target: str, command: list[str]) -> None:
    """Never returns: it becomes the command; a child forwards until the sandbox ends."""
    listening = socket.create_server(("127.0.0.1", port), backlog=64)
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        asyncio.run(_forward(listening, target))
    listening.close()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(127)


async def _forward(listening: socket.socket, target: str) -> None:
    """Accept without end, as many at one time as there are descriptors for."""
    listening.settimeout(0)
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = asyncio.Semaphore(max(1, min(_MOST_CONNECTIONS, (files - _OWN_FILES) // 2)))
    leading: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly
    while True:
        await free.acquire()
        try:
            client, _ = await asyncio.get_running_loop().sock_accept(listening)
        except OSError:  # the sandbox has no descriptor or memory left just now
            free.release()
            await asyncio.sleep(_RETRIES_AFTER_S)
            continue
        task = asyncio.create_task(_lead(client, target))
        leading.add(task)
        task.add_done_callback(leading.discard)
        task.add_done_callback(lambda _: free.release())


async def _lead(client: socket.socket, target: str) -> None:
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        there, back = await asyncio.open_unix_connection(target)
        try:
            await asyncio.gather(_pumped(reader, back), _pumped(there, writer))
        finally:
            await _closed(back)
    except OSError:
        return  # the run is over, or one side is gone: the client sees its connection end
    finally:
        await _closed(writer)


async def _pumped(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while part := await source.read(_CHUNK):
        target.write(part)
        await target.drain()
    with suppress(OSError):
        target.write_eof()


async def _closed(writer: asyncio.StreamWriter) -> None:
    """Close a socket, and wait until its descriptor is free."""
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
