"""Write what servers of OpenEnv answer: ``python record.py FOLDER NAME``, into ``recorded``.

FOLDER is an environment, as ``openenv init`` makes one; NAME says which sessions are played in it.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from trinity_envs_openenv.server import close_servers, served
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

RESET = {"type": "reset", "data": {}}


def step(**action: Any) -> dict[str, Any]:
    return {"type": "step", "data": action}


def call(tool_name: str, **arguments: Any) -> dict[str, Any]:
    return step(type="call_tool", tool_name=tool_name, arguments=arguments)


SESSIONS = {
    "echo": [
        [RESET, step(message="hello"), step(message="hello world"), step(message="")],
        [RESET, step(message="hello"), step(message="hello")],
        [RESET, step(message="hi"), step(text="hi"), step(message="hi")],
        [{"type": "reset", "data": {"seed": 7}}, step(message="hello")],
        [{"type": "reset", "data": {"seed": "seven"}}],
    ],
    "adder": [
        [
            RESET,
            step(type="list_tools"),
            call("add", a=40, b=6),
            call("add", a="forty"),
            call("hand_in", total=46),
        ],
        [RESET, step(type="list_tools"), call("add", a=40, b=6), call("hand_in", total=46)],
        [RESET, step(type="list_tools"), call("hand_in", total=45)],
    ],
}
PAGES = ("/health", "/schema", "/metadata")


def main(folder: str, name: str) -> None:
    """Play the sessions, and write them."""
    url = served(folder, app="")
    try:
        pages = {path: json.load(urllib.request.urlopen(url + path)) for path in PAGES}
        sessions = [played(url, messages) for messages in SESSIONS[name]]
        found = {"pages": pages, "sessions": sessions, "full": when_full(url)}
    finally:
        close_servers()
    file = Path(__file__).parent / "recorded" / f"{name}.json"
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {file}\n")


def played(url: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each message was answered with."""
    with connect(websocket(url), proxy=None) as socket:
        answers = []
        for message in messages:
            socket.send(json.dumps(message))
            answers.append({"sent": message, "got": json.loads(socket.recv(60))})
        socket.send(json.dumps({"type": "close"}))
    return answers


def when_full(url: str) -> dict[str, Any] | None:
    """Return what a connection hears that finds no room; None: there is room for many."""
    held = []
    try:
        for _ in range(10):
            held.append(connect(websocket(url), proxy=None).__enter__())
            with suppress(ConnectionClosed):  # without room it answers at once, and closes
                held[-1].send(json.dumps(RESET))
            answer = json.loads(held[-1].recv(60))
            if answer["type"] == "error":
                return answer
    finally:
        for socket in held:
            socket.close()
    return None


def websocket(url: str) -> str:
    return url.replace("http", "ws") + "/ws"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
