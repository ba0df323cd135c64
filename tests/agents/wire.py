"""Plays random conversations over HTTP, with retries, disconnects and runs that are ended midway.

    python tests/agents/wire.py [HOW_MANY]

Several agents of a run talk at the same time, over the real server. They hear replies whole or as
streams, go away before or amid one, ask again as OpenAI's client does; some runs are abandoned
while their agents talk. The engine's own record is the truth, and what agents heard.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent))
import templates
from conversations import RamblingEngine, said
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import Completion, GenerationRequest, RunKey
from trinity_serve.endpoint.server import EndpointHost
from trinity_testing.checks.replies import TOOL

NUM_STEPS, NUM_AGENTS = 4, 3
WAYS = {  # how an agent asks, and how often
    "plain": 8,
    "streamed": 3,
    "gone at once": 1,
    "gone amid the stream": 1,
    "gone and asked again": 2,
    "heard and asked again": 1,
}


class SlowEngine(RamblingEngine):
    """Thinks for a moment, so that clients go away meanwhile."""

    def __init__(self, rng: random.Random, form: Any, name: str) -> None:
        super().__init__(rng, form, name)
        self.thread = ThreadPoolExecutor(1)

    def submit(self, request: GenerationRequest) -> Future[list[Completion]]:
        """Answer a little later."""
        return self.thread.submit(self._answered, request)

    def _answered(self, request: GenerationRequest) -> list[Completion]:
        time.sleep(self.rng.random() / 200)
        return super().submit(request).result()


@dataclass
class Play:
    """One run, and what its agents heard of which exchange."""

    base_url: str
    key: str
    heard: dict[str, str] = field(default_factory=dict)
    ways: Counter[str] = field(default_factory=Counter)
    num_trained = 0
    num_unheard = 0


def play(seed: int, room: EndpointHost) -> Play:
    """Play one run and check it.

    Raises:
        AssertionError: what is trained is not what was sampled and served.
    """
    rng = random.Random(seed)
    path = rng.choice(sorted(templates.OWN.glob("*.jinja")))
    form = templates.chat_format(path.read_text("utf-8"))
    engine = SlowEngine(rng, form, path.stem)
    settings = ModelSettings(
        model_path="tiny", max_model_len=10**6, max_response_tokens=100, enable_openai_api=True
    )
    model = ModelWrapper(engine, form, settings, key=RunKey(run=seed), endpoints=room)  # type: ignore[arg-type] -- asked only
    endpoint = model.endpoint()
    told = Play(endpoint.base_url, endpoint.key)
    failures: list[BaseException] = []
    agents = [
        threading.Thread(target=guarded, args=(told, rng.getrandbits(32), failures))
        for _ in range(rng.randrange(1, NUM_AGENTS + 1))
    ]
    for agent in agents:
        agent.start()
    is_abandoned = rng.random() < 0.15
    if is_abandoned:
        time.sleep(rng.random() / 20)
        model.end_run()
    for agent in agents:
        agent.join()
    if failures:
        raise failures[0]
    until = time.monotonic() + 20
    while room.num_open and time.monotonic() < until:  # what nobody waits for is being given up
        time.sleep(0.001)
    assert room.num_open == 0
    if is_abandoned:
        told.ways["run abandoned"] += 1
    else:
        check_trained(told, model, engine)
        model.end_run()
    engine.thread.shutdown()
    return told


def guarded(told: Play, seed: int, failures: list[BaseException]) -> None:
    """Be an agent; keep what it raises."""
    try:
        talk(told, random.Random(seed))
    except BaseException as error:  # noqa: BLE001 -- raised again by the run
        failures.append(error)


def talk(told: Play, rng: random.Random) -> None:
    """Talk until all is said, or the run is over."""
    messages: list[dict[str, Any]] = [said("user", rng)]
    for _ in range(NUM_STEPS):
        [way] = rng.choices(list(WAYS), WAYS.values())
        status, reply = asked(told, messages, way, rng)
        told.ways[way] += 1
        if status in {401, 409}:  # the run was ended
            return
        if status == 400:  # as with two calls at once under a template that takes one
            messages = [said("user", rng)]
            continue
        assert status in {0, 200}, (status, reply)
        if reply is None:
            continue
        messages = [*messages, *followed(reply, rng)]


def followed(message: dict[str, Any], rng: random.Random) -> list[dict[str, Any]]:
    """Return a reply as it goes back, and what comes after it."""
    calls = message.get("tool_calls") or ()
    if not calls:
        return [message, said("user", rng)]
    return [message, *({**said("tool", rng), "tool_call_id": call["id"]} for call in calls)]


def asked(
    told: Play, messages: list[dict[str, Any]], way: str, rng: random.Random
) -> tuple[int, dict[str, Any] | None]:
    """Return the status and the message that the agent heard; 0 and None: it went away."""
    is_streamed = "stream" in way
    body = {"model": "tiny", "messages": messages, "tools": [TOOL], "stream": is_streamed}
    headers = {"Idempotency-Key": f"{rng.getrandbits(64):x}"}
    if way.startswith("gone a"):
        connection = opened(told, body, headers)
        time.sleep(rng.random() / 100)
        if "stream" in way:
            connection.getresponse().read(20)
        connection.close()
        if "again" not in way:
            return 0, None
        headers["x-stainless-retry-count"] = "1"
    status, name, message = heard(told, body, headers)
    if status == 200 and way == "heard and asked again":
        again = heard(told, body, headers)
        assert again[0] in {401, 409} or again == (status, name, message)
    if status == 200:
        assert name not in told.heard, "each question has an answer of its own"
        told.heard[name] = json.dumps(message)
    return status, message


def heard(
    told: Play, body: dict[str, Any], headers: dict[str, str]
) -> tuple[int, str, dict[str, Any] | None]:
    """Return status, the exchange's name and the message."""
    connection = opened(told, body, headers)
    try:
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        return answer.status, "", None
    if not body["stream"]:
        whole = json.loads(text)
        message = whole["choices"][0]["message"]
        return 200, exchange_of(whole["id"]), {k: v for k, v in message.items() if v is not None}
    return 200, *streamed(text)


def streamed(text: str) -> tuple[str, dict[str, Any]]:
    """Return the exchange's name and the message that the events of a stream make."""
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "".join(delta.get("content") or "" for delta in deltas),
    }
    calls = [call for delta in deltas for call in delta.get("tool_calls") or ()]
    if calls:
        message["tool_calls"] = [
            {key: value for key, value in call.items() if key != "index"} for call in calls
        ]
    return exchange_of(events[0]["id"]), message


def exchange_of(reply_id: str) -> str:
    """Return the number of an exchange, of the id of its reply.

    >>> exchange_of("chatcmpl-3/7/0-12")
    '12'
    """
    return reply_id.rpartition("-")[2]


def opened(told: Play, body: dict[str, Any], headers: dict[str, str]) -> HTTPConnection:
    """Return a connection over which the request went."""
    connection = HTTPConnection(urlsplit(told.base_url).netloc, timeout=60)
    given = {"Authorization": f"Bearer {told.key}", "Content-Type": "application/json", **headers}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), given)
    return connection


def check_trained(told: Play, model: ModelWrapper, engine: SlowEngine) -> None:
    """Check that what is trained was sampled and served, all that was heard, and nothing twice."""
    trained = {e.info["request"].split("-")[0]: e for e in model.extract_experience_from_history()}
    logprobs: list[float] = []
    for number, experience in trained.items():
        exchange = engine.exchanges[int(number)]
        [completion] = exchange.completions
        ids = exchange.request.prompt_token_ids + completion.token_ids
        assert tuple(experience.tokens.tolist()) == ids
        assert tuple(experience.logprobs.tolist()) == completion.logprobs
        logprobs += completion.logprobs
    assert len(logprobs) == len(set(logprobs)), "no two samples are as likely: none is there twice"
    assert set(told.heard) <= set(trained), "what an agent heard is trained"
    told.num_trained = len(logprobs)
    told.num_unheard = len(trained) - len(told.heard)
    num_gone = told.ways["gone amid the stream"] + told.ways["gone at once"]
    assert told.num_unheard <= num_gone, "what nobody was sent is not"


def main(arguments: list[str]) -> int:
    """Play so many runs and say what happened in them."""
    room = EndpointHost()
    plays = [play(seed, room) for seed in range(int(arguments[0]) if arguments else 500)]
    room.close()
    ways: Counter[str] = sum((one.ways for one in plays), Counter())
    sys.stdout.write(
        f"{len(plays)} runs: {sum(len(one.heard) for one in plays)} replies heard, "
        f"{sum(one.num_trained for one in plays)} tokens trained as sampled, none twice; "
        f"{sum(one.num_unheard for one in plays)} replies trained that were sent as an agent left\n"
        f"{', '.join(f'{word} {number}' for word, number in ways.most_common())}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
