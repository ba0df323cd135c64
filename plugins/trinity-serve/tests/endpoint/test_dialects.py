"""Streams, and the other forms in which clients ask: one recorder behind all."""

import json
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from trinity.errors import ModelError
from trinity_serve.endpoint import http
from trinity_testing.engines import ScriptedEngine

TOOL = {
    "name": "weather",
    "description": "Say the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
PARSER = {"tool_call_parser": "hermes"}


@pytest.fixture
def events():
    """Return what sends a request that is answered by events; it gives name and data of each."""

    def send(endpoint, path, body):
        connection = HTTPConnection(urlsplit(endpoint.base_url).netloc, timeout=20)
        headers = {"Authorization": f"Bearer {endpoint.key}"}
        connection.request("POST", path, json.dumps({**body, "stream": True}), headers)
        answer = connection.getresponse()
        assert answer.getheader("content-type").startswith("text/event-stream")
        blocks = answer.read().decode().strip().split("\n\n")
        connection.close()
        told = [block.rpartition("data: ")[2] for block in blocks if "data: " in block]
        return [json.loads(one) if one != "[DONE]" else one for one in told]

    return send


def test_a_streamed_chat_is_the_chat_in_chunks(model_of):
    model = model_of(CALL, **PARSER)
    client = model.get_openai_client()
    tool = {"type": "function", "function": TOOL}

    chunks = list(
        client.chat.completions.create(
            model="scripted",
            messages=[{"role": "user", "content": "how is Paris?"}],
            tools=[tool],
            stream=True,
            stream_options={"include_usage": True},
        )
    )

    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    [call] = deltas[1].tool_calls
    assert (call.index, call.function.name) == (0, "weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].usage.completion_tokens == len(CALL) + 1
    assert len(model.extract_experience_from_history()) == 1


def test_a_stream_of_a_failed_engine_is_an_error_status(model_of, asked, chat):
    status, body = asked(model_of(ScriptedEngine("x", fails_at=0)).endpoint(), chat(stream=True))

    assert (status, body["error"]["code"]) == (503, "engine_failed")


@pytest.mark.parametrize("fails", [False, True])
def test_comments_keep_a_stream_alive_until_the_reply_is_there(
    model_of, held_engine, chat, monkeypatch, fails
):
    monkeypatch.setattr(http, "COMMENT_EVERY_S", 0.01)
    engine = held_engine("hello")
    endpoint = model_of(engine).endpoint()
    connection = HTTPConnection(urlsplit(endpoint.base_url).netloc, timeout=20)
    headers = {"Authorization": f"Bearer {endpoint.key}"}
    connection.request("POST", "/v1/chat/completions", json.dumps(chat(stream=True)), headers)

    answer = connection.getresponse()
    comments = [answer.readline() for _ in range(4)]
    if fails:
        engine.held[0][1].set_exception(ModelError("out of memory"))
    else:
        engine.let_go()
    rest = answer.read().decode()
    connection.close()

    assert (answer.status, comments) == (200, [b": the model is at work\n", b"\n"] * 2)
    told = [line for line in rest.splitlines() if line and not line.startswith(":")]
    if fails:
        assert told[0] == "event: error"
        assert json.loads(told[1].removeprefix("data: "))["error"]["code"] == "engine_failed"
    else:
        assert (
            json.loads(told[1].removeprefix("data: "))["choices"][0]["delta"]["content"] == "hello"
        )
        assert told[-1] == "data: [DONE]"


def test_a_plain_text_is_gone_on_with_by_its_ids(model_of, asked):
    engine = ScriptedEngine(" time", " again")
    model = model_of(engine)
    endpoint = model.endpoint()

    _, first = asked(endpoint, {"model": "scripted", "prompt": "once upon a"}, "/v1/completions")
    ids = {"model": "scripted", "prompt": [5, 6, 7], "return_token_ids": True}
    _, second = asked(endpoint, ids, "/v1/completions")

    assert first["choices"][0]["text"] == " time"
    assert second["prompt_token_ids"] == [5, 6, 7]
    assert engine.exchanges[1].request.prompt_token_ids == (5, 6, 7)
    assert len(model.extract_experience_from_history()) == 2


def test_the_responses_interface_runs_a_tool_conversation(model_of):
    model = model_of(CALL, "sunny", **PARSER)
    client = model.get_openai_client()
    tool = {"type": "function", **TOOL}
    said = [{"role": "user", "content": "how is Paris?"}]

    first = client.responses.create(model="scripted", input=said, tools=[tool], instructions="Help")
    [call] = first.output
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
    second = client.responses.create(
        model="scripted",
        input=[*said, call.model_dump(), answer],
        tools=[tool],
        instructions="Help",
    )
    one, two = model.extract_experience_from_history()

    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "weather",
        {"city": "Paris"},
    )
    assert second.output_text == "sunny"
    assert second.usage.output_tokens == len("sunny") + 1
    assert "tool" in [message["role"] for message in two.messages]
    assert one.info["request"] == "0-0"


def test_a_streamed_response_ends_with_the_whole(model_of):
    client = model_of("hello").get_openai_client()

    told = list(client.responses.create(model="scripted", input="hi", stream=True))

    kinds = [one.type for one in told]
    assert kinds[0] == "response.created"
    assert "response.output_text.delta" in kinds
    assert kinds[-1] == "response.completed"
    assert told[-1].response.output_text == "hello"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": [{"type": "image_generation_call"}]}, "input[0].type"),
        ({"input": ""}, "input"),
    ],
)
def test_what_the_responses_interface_has_not_is_named(model_of, asked, fields, named):
    body = {"model": "scripted", "input": "hi", **fields}

    status, told = asked(model_of("x").endpoint(), body, "/v1/responses")

    assert (status, told["error"]["param"]) == (400, named)


def test_anthropics_interface_runs_a_tool_conversation(model_of, asked):
    model = model_of(CALL, "sunny", **PARSER)
    endpoint = model.endpoint()
    tool = {"name": "weather", "input_schema": TOOL["parameters"]}
    body = {"model": "scripted", "max_tokens": 200, "system": "Help", "tools": [tool]}
    said = [{"role": "user", "content": "how is Paris?"}]

    _, first = asked(endpoint, {**body, "messages": said}, "/v1/messages")
    [call] = first["content"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sun"}
    further = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    _, second = asked(endpoint, {**body, "messages": [*said, *further]}, "/v1/messages")

    assert (first["stop_reason"], call["name"], call["input"]) == (
        "tool_use",
        "weather",
        {"city": "Paris"},
    )
    assert second["content"] == [{"type": "text", "text": "sunny"}]
    assert second["stop_reason"] == "end_turn"
    assert len(model.extract_experience_from_history()) == 2


def test_anthropics_stream_and_errors_have_its_shape(model_of, asked, events):
    endpoint = model_of("hello").endpoint()
    body = {"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}

    status, refused = asked(endpoint, body, "/v1/messages")
    told = events(endpoint, "/v1/messages", {**body, "max_tokens": 20})

    assert (status, refused["type"], refused["error"]["type"]) == (
        400,
        "error",
        "invalid_request_error",
    )
    assert [one["type"] for one in told] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert told[2]["delta"] == {"type": "text_delta", "text": "hello"}
