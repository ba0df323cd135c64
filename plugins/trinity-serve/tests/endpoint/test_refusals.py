"""What is not answered: the status, and one sentence for the agent's author."""

from importlib.util import find_spec

import pytest
from trinity_serve.endpoint.chat import tool_choice
from trinity_testing.engines import ScriptedEngine


@pytest.fixture
def endpoint(model_of):
    return model_of("never said").endpoint()


TOOL = {"type": "function", "function": {"name": "answer", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
    ],
)
def test_a_form_that_the_engine_cannot_hold_is_named_so_that_a_client_leaves_it_out(
    endpoint, asked, chat, fields, named
):
    status, body = asked(endpoint, chat(**fields))

    assert status == 400
    assert body["error"]["param"] == named
    assert body["error"]["message"].startswith(f"{named} cannot be honoured: structure")


def test_a_model_that_may_call_tools_is_held_to_no_form(model_of, asked, chat):
    engine = ScriptedEngine("4")
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    endpoint = model_of(engine).endpoint()

    free, _ = asked(endpoint, chat(tools=[tool], response_format=form))
    held, told = asked(endpoint, chat(tools=[tool], tool_choice="none", response_format=form))

    assert engine.exchanges[0].request.structure is None
    assert (free, held, told["error"]["param"]) == (200, 400, "response_format")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"5": True}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"frequency_penalty": -2.5}, "frequency_penalty"),
        ({"seed": 1.5}, "seed"),
        ({"audio": {}}, "audio"),
        ({"prediction": {}}, "prediction"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"min_p": 1.5}, "min_p"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 129}, "n"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        (
            {"tools": [{"function": {"name": "f", "parameters": True}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"function": {"name": "f", "parameters": "x"}}], "tool_choice": "required"},
            "tools[0].function.parameters",
        ),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"model": None}, "model"),
        ({"model": "scripted:no blanks"}, "model"),
    ],
)
def test_a_field_that_cannot_be_honoured_is_named(endpoint, asked, chat, fields, named):
    status, body = asked(endpoint, chat(**fields))

    error = body["error"]
    assert (status, error["type"], error["param"]) == (400, "invalid_request_error", named)
    assert error["message"].startswith(named)
    assert error["message"].endswith(".")


def test_an_image_is_refused_with_its_place(endpoint, asked, chat):
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]

    status, body = asked(endpoint, chat(messages=[{"role": "user", "content": parts}]))

    assert status == 400
    assert body["error"]["param"] == "messages[0].content[1]"
    assert "texts only" in body["error"]["message"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b'{"n": NaN}',
        b"\xff\xfe",
        b'{"model": "scripted", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 100_000,
        b'{"n": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_body_that_is_no_object_of_json_is_refused(endpoint, asked, raw):
    status, body = asked(endpoint, raw)

    assert (status, body["error"]["code"]) == (400, "invalid_request_error")
    assert body["error"]["message"].startswith("the body is")


def test_who_shows_no_key_or_a_wrong_one_is_refused(endpoint, asked, chat):
    for shown in ("", "Bearer trk-wrong", "Basic abc"):
        status, body = asked(endpoint, chat(), Authorization=shown)

        assert (status, body["error"]["code"]) == (401, "invalid_api_key")


def test_the_key_may_stand_in_a_header_or_in_the_path(model_of, asked, chat):
    endpoint = model_of("one", "two").endpoint()
    in_header = {"Authorization": "", "x_api_key": endpoint.key}

    first = asked(endpoint, chat(), **in_header)
    second = asked(
        endpoint, chat(), path=f"/r/{endpoint.key}/v1/chat/completions", Authorization=""
    )

    assert [status for status, _ in (first, second)] == [200, 200]


def test_an_unknown_model_is_told_the_known_ones(endpoint, asked, chat):
    status, body = asked(endpoint, chat(model="gpt-9"))

    assert (status, body["error"]["code"]) == (404, "model_not_found")
    assert body["error"]["message"] == "there is no model 'gpt-9'; known: scripted."


def test_an_unknown_path_and_a_wrong_method_are_told(endpoint, asked, chat):
    assert asked(endpoint, chat(), path="/v1/embeddings")[0] == 404
    assert asked(endpoint, None)[0] == 405
    assert asked(endpoint, chat(), path="/v1/models")[0] == 405


def test_a_chat_is_never_cut_behind_an_agents_back(endpoint, asked, chat):
    status, body = asked(endpoint, chat("word " * 5000))

    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


def test_roles_that_the_template_refuses_are_named(model_of, asked, chat):
    model = model_of("x")
    template = "{{ raise_exception('no system role') }}"
    model.chat_format._chat_template = template
    try:
        status, body = asked(model.endpoint(), chat("a chat of its own"))
    finally:
        model.chat_format._chat_template = None

    assert (status, body["error"]["code"]) == (400, "template_refuses")
    assert "roles: user" in body["error"]["message"]


def test_after_the_run_the_key_is_refused_once_and_for_all(model_of, asked, chat):
    model = model_of("one")
    endpoint = model.endpoint()
    model.end_run()

    status, body = asked(endpoint, chat())

    assert (status, body["error"]["code"]) == (409, "run_over")


def test_an_engine_that_fails_is_a_503_that_the_run_hears_of(model_of, asked, chat):
    model = model_of(ScriptedEngine("fine", fails_at=0))
    status, body = asked(model.endpoint(), chat())

    assert (status, body["error"]["code"]) == (503, "engine_failed")
    with pytest.raises(Exception, match="the last call of the agent got no reply: the scripted"):
        model.check_served()


def test_health_needs_no_key_and_load_counts_what_is_open(endpoint, asked):
    assert asked(endpoint, None, path="/health", Authorization="")[0] == 200
    assert asked(endpoint, None, path="/load") == (200, {"server_load": 0})
    assert asked(endpoint, None, path="/load", Authorization="")[0] == 401


@pytest.mark.skipif(find_spec("llguidance") is None, reason="trinity-core[structured]")
@pytest.mark.parametrize(
    ("more", "reference"),
    [
        ({}, "#/$defs/Item"),
        ({}, "#item"),
        ({"$id": "https://example.com/order.json"}, "#/$defs/Item"),
    ],
)
def test_a_forced_call_reads_the_definitions_of_each_tools_own_schema(more, reference):
    def tool(name, type_):
        items = {"type": "array", "items": {"$ref": reference}}
        item = {"type": "object", "properties": {"name": {"type": type_}}, "$anchor": "item"}
        own = {key: f"{value}?{name}" for key, value in more.items()}
        schema = {"type": "object", "properties": {"items": items}, "$defs": {"Item": item}}
        schema = {**own, **schema}
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    body = {"tools": [tool("order", "string"), tool("count", "integer")], "tool_choice": "required"}
    structure = tool_choice(body).structure

    assert problems_of(structure) == ""


def problems_of(structure):
    from llguidance import LLMatcher

    return LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(structure.text))


@pytest.mark.skipif(find_spec("llguidance") is None, reason="trinity-core[structured]")
@pytest.mark.parametrize(
    "more",
    [
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://example.com/item"},
        {"$schema": "http://json-schema.org/draft-06/schema#"},
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "https://example.com/item"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema"},
        {"$id": "https://example.com/item"},  # of both tools
        {"$id": None},
    ],
)
def test_a_forced_call_reads_schemas_of_all_drafts_whose_root_is_a_reference(more):
    def tool(name):
        item = {"type": "object", "properties": {name: {"type": "string"}}}
        schema = {"$ref": f"#/definitions/{name}", "definitions": {name: item}, **more}
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    body = {"tools": [tool("order"), tool("count")], "tool_choice": "required"}
    structure = tool_choice(body).structure

    assert problems_of(structure) == ""
