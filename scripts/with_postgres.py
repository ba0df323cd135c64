"""Run a command beside a PostgreSQL server of its own, which ends with it.

    python scripts/with_postgres.py [FOLDER_OF_PG_CTL] -- COMMAND ...

The command finds the server's URL in ``TRINITY_TEST_POSTGRES``. The server refuses to run as root,
so root lets the user ``postgres`` run it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = "postgres"


def main() -> int:
    """Return the command's exit code."""
    given, _, command = (list(part) for part in _split(sys.argv[1:]))
    found = shutil.which("pg_ctl")
    folder = Path(given[0]) if given else Path(found or "pg_ctl").resolve().parent
    with server(folder) as url:
        words = ["env", f"TRINITY_TEST_POSTGRES={url}", *command]
        return subprocess.run(words, check=False).returncode


@contextmanager
def server(programs: Path) -> Iterator[str]:
    """Yield the URL of a server that runs inside."""
    with tempfile.TemporaryDirectory(prefix="trinity_pg_") as name:
        folder, port = Path(name), _free_port()
        if os.geteuid() == 0:
            shutil.chown(folder, USER)
        data, log = folder / "data", folder / "log"
        _run(programs / "initdb", "-D", data, "-A", "trust", "-U", USER)
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        _run(programs / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "start")
        try:
            yield f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        finally:
            _run(programs / "pg_ctl", "-D", data, "-m", "fast", "-w", "stop")


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    if os.geteuid() == 0:
        words = ["runuser", "-u", USER, "--", *words]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd="/")


def _free_port() -> int:
    with socket.socket() as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        return int(server_socket.getsockname()[1])


def _split(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    place = words.index("--")
    return words[:place], ["--"], words[place + 1 :]


if __name__ == "__main__":
    sys.exit(main())
