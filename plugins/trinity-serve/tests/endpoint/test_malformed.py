"""Bad input: the right status, one sentence, a server that lives, nothing left in the engine."""

import json
import random
import socket
import time
from urllib.parse import urlsplit

import pytest
from trinity_testing.engines import ScriptedEngine

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
ODD = (None, True, -1, 3.5, "", "word", [], [1], {}, {"a": 1}, [[]], [None], 10**30)
FIELDS = (
    "model",
    "messages",
    "prompt",
    "input",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "n",
    "max_tokens",
    "stop",
    "logprobs",
    "response_format",
    "stream_options",
    "chat_template_kwargs",
    "system",
    "text",
    "parallel_tool_calls",
)


def malformed(number):
    """Return the path and the bytes of a body, another for each number."""
    draw = random.Random(number)
    body = {
        "model": "scripted",
        "messages": [{"role": "user", "content": "hi"}],
        "prompt": "hi",
        "input": "hi",
        "max_tokens": 5,
    }
    for name in draw.sample(FIELDS, draw.randint(1, 3)):
        body[name] = draw.choice(ODD)
    raw = bytearray(json.dumps(body).encode())
    if number % 5 == 0:
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    if number % 7 == 0:
        del raw[draw.randrange(len(raw)) :]
    return draw.choice(PATHS), bytes(raw)


def wait_until_idle(room):
    deadline = time.monotonic() + 5
    while room.num_open:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_sixty_malformed_bodies_are_answered_in_one_sentence_each(model_of, asked, room):
    model = model_of(ScriptedEngine("ok", repeat=True))
    endpoint = model.endpoint()

    for number in range(60):
        path, raw = malformed(number)
        status, body = asked(endpoint, raw, path)
        if status == 200:
            continue
        message = body["error"]["message"]
        assert status in {400, 404}, (number, status, message)
        assert message.endswith("."), (number, message)
        assert "\n" not in message

    assert asked(endpoint, None, "/health")[0] == 200
    wait_until_idle(room)


def test_ten_megabytes_are_refused_for_their_length_in_tokens_or_bytes(model_of, asked, chat):
    endpoint = model_of("x").endpoint()

    status, body = asked(endpoint, chat(temperature="x" * 10 * 2**20))

    assert status == 400
    assert len(body["error"]["message"]) < 200


def test_a_body_above_the_limit_is_not_read(model_of):
    endpoint = model_of("x").endpoint()
    parts = urlsplit(endpoint.base_url)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {endpoint.key}"
        f"\r\nContent-Length: {2**30}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(head.encode())
        answer = connection.recv(4096)

    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("num_bytes", [0, 20, 90, 110])
def test_who_hangs_up_early_leaves_nothing_behind(model_of, asked, chat, room, num_bytes):
    endpoint = model_of("x").endpoint()
    parts = urlsplit(endpoint.base_url)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {endpoint.key}"
        f"\r\nContent-Length: 500\r\n\r\n{{"
    )
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(head.encode()[: num_bytes or None])
    time.sleep(0.05)

    assert asked(endpoint, chat())[0] == 200
    wait_until_idle(room)


def test_odd_conversations_are_served(model_of, asked, chat):
    engine = ScriptedEngine("ok", repeat=True)
    endpoint = model_of(engine).endpoint()
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
    user, tool = {"role": "user", "content": "hi"}, {"role": "tool", "content": "5"}
    for messages in (
        [user, {**tool, "tool_call_id": "of nobody"}],
        [user, {"role": "assistant", "content": None, "tool_calls": [call, call]}, tool, tool],
        [{"role": "developer", "content": [{"type": "text", "text": "be kind"}]}, user],
        [user, {"role": "assistant", "content": "So I"}],
    ):
        assert asked(endpoint, chat(messages=messages))[0] == 200

    last = engine.tokenizer.decode(engine.exchanges[-1].request.prompt_token_ids)
    assert last.endswith("assistant\nSo I")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("raw", [b'{"user": "\xed\xa0\x80"}', '{"user": "x"}'.encode("utf-16")])
def test_a_body_that_is_no_utf_8_is_refused(model_of, asked, path, raw) -> None:
    status, body = asked(model_of("hi").endpoint(), raw, path)

    assert status == 400
    assert "'utf-8' codec can't decode byte" in body["error"]["message"]
