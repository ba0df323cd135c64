"""Asks a server of OpenAI's dialect, for ``endpoint_table.py``: nothing but sockets and JSON.

    python endpoint_client.py '{"url": ..., "keys": [...], "turns": 8, ...}'

One thread for each key; each plays conversations of so many turns. Prints how long calls took.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit


def main() -> None:
    """Print one line of JSON: seconds of each call."""
    job = json.loads(sys.argv[1])
    took: list[float] = []
    failed: list[str] = []
    threads = [
        threading.Thread(target=guarded, args=(job, number, took, failed))
        for number in range(len(job["keys"]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps({"took": took, "failed": failed}) + "\n")


def guarded(job: dict[str, Any], number: int, took: list[float], failed: list[str]) -> None:
    """Play the conversations of one key."""
    try:
        play(job, number, took)
    except Exception as error:  # noqa: BLE001 -- what failed is counted
        failed.append(f"run {number}: {type(error).__name__}: {error}")


WORDS = (
    "you see a table two chairs and an open door north of the kitchen where it is warm take the "
    "apple from fridge put in on under shelf look at book desk lamp go to bed room clean mug with "
    "sink then heat egg microwave examine drawer close cabinet carry knife towel"
)


def told(job: dict[str, Any], number: int, repeat: int) -> str:
    """Return what a user says: other words, and as many as their number decides."""
    drawn = random.Random(1000 * number + repeat)
    return " ".join(drawn.choices(WORDS.split(), k=drawn.randint(*job["num_words"])))


def play(job: dict[str, Any], number: int, took: list[float]) -> None:
    """Play the conversations of one key, all over one connection."""
    where = urlsplit(job["url"])
    connection = http.client.HTTPConnection(where.netloc, timeout=300)
    for repeat in range(job["conversations"]):
        # The first words differ, so that no cache of prefixes knows the prompt.
        first = f"run {number} {repeat} {time.monotonic_ns()} " + told(job, number, repeat)
        messages = [{"role": "user", "content": first}]
        for _ in range(job["turns"]):
            began = time.perf_counter()
            said = asked(connection, where.path, job, key=job["keys"][number], messages=messages)
            took.append(time.perf_counter() - began)
            messages += [
                {"role": "assistant", "content": said},
                {"role": "user", "content": "And then? " * 4},
            ]


def asked(
    connection: http.client.HTTPConnection,
    path: str,
    job: dict[str, Any],
    *,
    key: str,
    messages: list[dict[str, str]],
) -> str:
    """Return the reply's text; a stream is read to its end."""
    body = {"model": "tiny", "messages": messages, **job["fields"]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", f"{path}/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {text[:300]}")
    if not body.get("stream"):
        return json.loads(text)["choices"][0]["message"]["content"] or ""
    events = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    pieces = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    return "".join(piece.get("content") or "" for piece in pieces)


if __name__ == "__main__":
    main()
