"""Stands where ``in_child/child.py`` stands, and answers as that was recorded to answer.

A run asks the model once by HTTP, as verifiers does. ``DIES`` is a taskset whose runs end the
process; one of ``HANGS`` waits to be cancelled; one of ``BLOCKS`` lets the process hear no more.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

RECORDED = json.loads(Path(__file__).with_name("recorded").joinpath("child.json").read_text())
OUT = threading.Lock()


def main() -> None:
    """Answer line by line; runs do not wait for each other."""
    told: dict[str, Any] = {}
    hung: dict[int, threading.Event] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] == "load":
            name = Path(asked["taskset"]).name
            told = RECORDED.get(name, {**RECORDED["letters.py"], "name": name})
            answer(asked, told["load"])
        elif asked["do"] == "rows":
            answer(asked, told["rows"])
        elif asked["do"] == "cancel":
            hung[asked["run"]].set()
            answer(asked, {"result": None})
        elif told.get("name") == "DIES":
            sys.stderr.write("a taskset's last words\n")
            os._exit(3)
        elif told.get("name") == "HANGS":
            hung[asked["id"]] = event = threading.Event()
            threading.Thread(target=hang, args=(asked, event)).start()
        elif told.get("name") == "BLOCKS" and asked["task"] == 0:
            time.sleep(3600)
        else:
            threading.Thread(target=run, args=(asked, told)).start()


def run(asked: dict[str, Any], told: dict[str, Any]) -> None:
    """Ask the model, and answer."""
    body = {"model": asked["model"], "messages": [{"role": "user", "content": "say 2"}]}
    request = urllib.request.Request(
        f"{asked['base_url']}/chat/completions",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {asked['key']}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as reply:
            reply.read()
    except OSError:
        sys.stderr.write("no reply\n")
    answer(asked, told["runs"][str(asked["task"])])


def hang(asked: dict[str, Any], event: threading.Event) -> None:
    event.wait()
    answer(asked, {"error": "CancelledError: "})


def answer(asked: dict[str, Any], said: dict[str, Any]) -> None:
    with OUT:
        sys.stdout.write(json.dumps({"id": asked["id"], **said}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
