"""The agents of ``kill_matrix.py``: a command of two calls, and what is left of it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

FOLDER = "agents"
WAITS_S = 5.0
GONE_WITHIN_S = 10.0
AGENT = """
import json, os, sys, urllib.request

NOTE = os.path.join(sys.argv[1], str(os.getpid()))


def note(state):
    with open(NOTE + ".new", "w") as file:
        file.write(os.environ["OPENAI_BASE_URL"] + " " + state)
    os.replace(NOTE + ".new", NOTE)


def ask(messages, **fields):
    body = {"model": os.environ["TRINITY_MODEL"], "messages": messages, **fields}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    return urllib.request.urlopen(request).read().decode()


note("asks")
task = json.load(open(os.environ["TRINITY_TASK_FILE"]))
messages = [{"role": "user", "content": task["question"]}]
first = json.loads(ask(messages))["choices"][0]["message"]
messages += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": "+"}]
note("streams")
said = ask(messages, stream=True)
note("done")
assert said.rstrip().endswith("[DONE]"), said
letters = sum(map(str.isalpha, first["content"]))
json.dump(letters / 16, open(os.environ["TRINITY_RESULT_FILE"], "w"))
"""


def written(folder: Path) -> dict[str, Any]:
    """Write the agent, and return the settings of a taskset whose runs it makes."""
    (folder / FOLDER).mkdir()
    (folder / "agent.py").write_text(AGENT)
    command = ["python", str(folder / "agent.py"), str(folder / FOLDER)]
    return {"default_workflow_type": "agent_workflow", "workflow_args": {"command": command}}


def are_asked(folder: Path) -> bool:
    """Return whether the runs of the matrix are made by agents."""
    return (folder / FOLDER).exists()


def wait_for_stream(folder: Path) -> int | None:
    """Return an agent to which a reply is being streamed; None: none was for some seconds."""
    place = folder / FOLDER
    limit = time.monotonic() + WAITS_S
    while time.monotonic() < limit:
        for file in place.glob("[0-9]*"):
            if not file.suffix and file.read_text().endswith("streams") and is_alive(file.name):
                return int(file.name)
        time.sleep(0.002)
    return None


def is_alive(pid: str) -> bool:
    """Return whether the process runs; one that is only still listed does not."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_behind(folder: Path) -> list[str]:
    """Return the processes that know the folder, and the ports of endpoints, that are still there.

    They are given some seconds to end.
    """
    limit = time.monotonic() + GONE_WITHIN_S
    while (left := _left(folder)) and time.monotonic() < limit:
        time.sleep(0.2)
    return left


def _left(folder: Path) -> list[str]:
    own, found = _ancestors(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        is_ours = str(folder).encode() in words and int(process.name) not in own
        if is_ours and is_alive(process.name):
            found.append(f"process {process.name}")
    notes = [file.read_text() for file in (folder / FOLDER).glob("[0-9]*")]
    urls = {note.partition(" ")[0] for note in notes}
    return found + [f"port of {url}" for url in sorted(urls) if _listens(url)]


def _ancestors() -> set[int]:
    """Return this process and those that started it: they may name the folder too."""
    found, pid = set(), os.getpid()
    while pid:
        found.add(pid)
        stat = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
        pid = int(stat[1])
    return found


def _listens(url: str) -> bool:
    place = urlsplit(url)
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((place.hostname or "", place.port or 0)) == 0
