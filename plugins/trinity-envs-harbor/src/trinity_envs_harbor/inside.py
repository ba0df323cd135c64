"""Listen at a port of this sandbox for an agent, lead it to a unix socket, and become the agent.

Run inside as ``python -ISB inside.py PORT SOCKET PROGRAM ARGUMENTS...``, with the standard library
alone.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

__all__ = ["main"]

_CHUNK = 1 << 16


def main(port: int, target: str, command: list[str]) -> None:
    """Never returns: it becomes the command; a child forwards until the sandbox ends."""
    listening = socket.create_server(("127.0.0.1", port), backlog=64)
    if os.fork() == 0:
        for number in (0, 1, 2):
            os.close(number)
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_lead, args=(client, target), daemon=True).start()
    listening.close()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        os._exit(127)


def _lead(client: socket.socket, target: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as there:
        try:
            there.connect(target)
        except OSError:
            return  # the run is over: the client sees its connection end
        back = threading.Thread(target=_pump, args=(there, client), daemon=True)
        back.start()
        _pump(client, there)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while part := source.recv(_CHUNK):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # one side is gone


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
