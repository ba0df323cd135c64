"""What the named parsers read, what they leave, and which one a model gets."""

from inspect import getsource

import pytest
from transformers import PreTrainedTokenizerBase
from trinity.common.models.chat_format import ChatFormat
from trinity.common.models.reply import reply_parser
from trinity.common.models.settings import ModelSettings
from trinity.errors import UnknownComponentError
from trinity.extend import get_manager
from trinity_testing.checks.replies import TOOL
from trinity_testing.tiny import CHAT_TEMPLATE, make_tiny_tokenizer

HERMES = '<tool_call>\n{"name": "look_up", "arguments": {"word": "tea"}}\n</tool_call>'
CODER = (
    "<tool_call>\n<function=look_up>\n<parameter=word>\n7\n</parameter>\n"
    "<parameter=count>\n7\n</parameter>\n</function>\n</tool_call>"
)
GLM = (
    "<tool_call>look_up\n<arg_key>word</arg_key>\n<arg_value>7</arg_value>\n"
    "<arg_key>count</arg_key>\n<arg_value>7</arg_value>\n</tool_call>"
)


def parsed(name, text, *, prompt="", tools=(TOOL,)):
    return get_manager().load("reply_parser", name)().parse(text, prompt=prompt, tools=list(tools))


def calls(reply):
    return [(call.name, call.arguments) for call in reply.tool_calls]


@pytest.mark.parametrize(
    ("name", "text", "content"),
    [
        ("hermes", "I look.\n" + HERMES, "I look."),
        ("hermes", HERMES, ""),
        ("llama3_json", '{"name": "look_up", "parameters": {"word": "tea"}}', ""),
        ("llama3_json", '<|python_tag|>{"name": "look_up", "parameters": {"word": "tea"}}', ""),
        ("mistral", 'So:[TOOL_CALLS][{"name": "look_up", "arguments": {"word": "tea"}}]', "So:"),
        ("mistral", '[TOOL_CALLS]look_up[ARGS]{"word": "tea"}', ""),
        ("pythonic", '[look_up(word="tea")]', ""),
        (
            "glm45",
            "So:\n<tool_call>look_up\n<arg_key>word</arg_key>\n<arg_value>tea</arg_value>\n"
            "</tool_call>",
            "So:",
        ),
        (  # as GLM 4.7 writes it
            "glm45",
            "<tool_call>look_up<arg_key>word</arg_key><arg_value>tea</arg_value></tool_call>",
            "",
        ),
    ],
)
def test_a_call_is_read_and_what_stands_beside_it_is_content(name, text, content):
    reply = parsed(name, text)

    assert calls(reply) == [("look_up", {"word": "tea"})]
    assert (reply.content, reply.is_malformed) == (content, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", HERMES * 2),
        ("glm45", GLM * 2),
        (
            "llama3_json",
            '{"name": "look_up", "parameters": {"word": "tea"}}; '
            '{"name": "look_up", "parameters": {"word": "tea"}}',
        ),
        ("mistral", '[TOOL_CALLS]look_up{"word": "tea"}' * 2),
        ("pythonic", '[look_up(word="tea"), look_up(word="tea")]'),
    ],
)
def test_two_calls_have_ids_of_their_own_that_nobody_can_guess(name, text):
    first, second = parsed(name, text).tool_calls

    assert first.id != second.id
    assert [len(call.id) for call in (first, second)] == [29, 29]  # call_ and 24 digits
    assert int(first.id.removeprefix("call_"), 16) >= 0


@pytest.mark.parametrize(("name", "text"), [("qwen3_coder", CODER), ("glm45", GLM)])
def test_a_value_is_what_the_schema_says(name, text):
    # word is a string, count an integer: the same text is two things
    assert calls(parsed(name, text)) == [("look_up", {"word": "7", "count": 7})]


def test_a_value_that_is_not_what_the_schema_says_stays_the_text_it_is():
    reply = parsed("qwen3_coder", CODER.replace("count>\n7", "count>\nmany"))

    assert calls(reply) == [("look_up", {"word": "7", "count": "many"})]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": ["integer", "null"]}, 7),
        ({"type": ["string", "null"]}, "7"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),  # Optional[int]
        ({"oneOf": [{"type": "null"}, {"type": ["number"]}]}, 7),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "7"),
        ({"anyOf": [{}, True, {"type": "null"}]}, "7"),
        ({"anyOf": "integer"}, "7"),  # no schema
        ({"anyOf": None, "oneOf": [{"type": "integer"}]}, 7),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 7),  # as vLLM's parser reads it
        ({"enum": [1, 7, None]}, 7),  # of values of several types
        ({"enum": ["1", "7"]}, "7"),
        (True, "7"),  # JSON Schema: any value
        (None, "7"),
    ],
)
def test_a_schema_may_allow_several_types_or_anything(schema, value):
    function = {**TOOL["function"], "parameters": {"properties": {"count": schema}}}
    reply = parsed("qwen3_coder", CODER, tools=[{**TOOL, "function": function}])

    assert calls(reply) == [("look_up", {"word": "7", "count": value})]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, '{"n": 1}', {"n": 1}),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, "[1, 2]", [1, 2]),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, "null", None),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "true", True),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "True", "True"),
        ({"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]}, '{"n": 1}', {"n": 1}),
        ({"$ref": "#/$defs/Place"}, '{"n": 1}', {"n": 1}),
        ({"$ref": "#/$defs/Word"}, "7", "7"),  # such a type may be an enum of texts
    ],
)
def test_a_value_is_read_by_the_branch_of_its_schema(schema, text, value):
    function = {**TOOL["function"], "parameters": {"properties": {"count": schema}}}
    written = CODER.replace("count>\n7", f"count>\n{text}")
    reply = parsed("qwen3_coder", written, tools=[{**TOOL, "function": function}])

    assert calls(reply) == [("look_up", {"word": "7", "count": value})]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"$ref": "#/$defs/Level"}, "7", 7),
        ({"$ref": "#/$defs/Word"}, '{"n": 1}', '{"n": 1}'),
        ({"allOf": [{"$ref": "#/definitions/Place"}], "default": None}, '{"n": 1}', {"n": 1}),
        ({"anyOf": [{"$ref": "#/$defs/Level"}, {"type": "null"}]}, "null", None),
        ({"$ref": "#/$defs/Tree"}, "[1]", [1]),  # which leads to itself
        ({"$ref": "#/$defs/Bare"}, '{"n": 1}', {"n": 1}),
        ({"$ref": "#/$defs/Gone"}, "[1]", [1]),
        ({"$ref": "#/$defs/Level/type/none"}, "[1]", [1]),
        ({"$ref": 3}, "[1]", [1]),  # no schema
    ],
)
def test_a_value_is_read_by_the_class_that_its_schema_refers_to(schema, text, value):
    """As pydantic writes an enum of integers, and a class with a default."""
    classes = {
        "Level": {"enum": [1, 7], "title": "Level", "type": "integer"},
        "Word": {"enum": ["tea", "7"], "type": "string"},
        "Tree": {"anyOf": [{"$ref": "#/$defs/Tree"}, {"type": "string"}]},
        "Bare": {"properties": {"n": {}}},
    }
    place = {"Place": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    parameters = {"properties": {"count": schema}, "$defs": classes, "definitions": place}
    tool = {**TOOL, "function": {**TOOL["function"], "parameters": parameters}}

    reply = parsed("qwen3_coder", CODER.replace("count>\n7", f"count>\n{text}"), tools=[tool])

    assert calls(reply) == [("look_up", {"word": "7", "count": value})]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("qwen3_coder", CODER.replace("word>\n7\n", "word>\n\n 7 \n\n"), "\n 7 \n"),
        ("qwen3_coder", CODER.replace("word>\n7\n", "word>\n"), ""),
        ("glm45", GLM.replace(">7<", ">\n 7 \n<", 1), "\n 7 \n"),
        ("glm45", GLM.replace(">7<", "><", 1), ""),
    ],
)
def test_a_text_keeps_the_white_space_that_is_not_the_notations(name, text, value):
    assert calls(parsed(name, text)) == [("look_up", {"word": value, "count": 7})]


def test_a_glm_call_may_have_no_arguments():
    assert calls(parsed("glm45", "<tool_call>look_up\n</tool_call>")) == [("look_up", {})]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", HERMES.removesuffix("</tool_call>")),
        ("hermes", HERMES.replace("}}", "}")),
        ("hermes", HERMES.replace('{"word": "tea"}', '"tea"')),
        ("hermes", HERMES.replace('"tea"', "NaN")),
        ("hermes", HERMES.replace("tea", "\\ud800")),
        ("hermes", HERMES + "</tool_call>"),
        ("qwen3_coder", CODER.replace("</parameter>", "")),
        ("glm45", GLM.replace("</arg_value>", "")),
        ("glm45", GLM.replace("look_up\n", "")),
        ("glm45", GLM.replace("<arg_key>", "and <arg_key>")),
        ("glm45", GLM.removesuffix("</tool_call>")),
        ("glm45", HERMES),
        ("llama3_json", '{"name": "look_up", "parameters": {"word": "tea"}} and more'),
        ("mistral", "[TOOL_CALLS]look_up"),
        ("pythonic", "[look_up(word=tea)]"),
        ("pythonic", '[look_up("tea")]'),
    ],
)
def test_a_call_that_is_none_leaves_the_reply_as_it_is(name, text):
    reply = parsed(name, "Well. " + text if name == "hermes" else text)

    assert reply.is_malformed
    assert reply.content.endswith(text)
    assert reply.tool_calls == ()


@pytest.mark.parametrize(
    "name", ["hermes", "qwen3_coder", "glm45", "llama3_json", "mistral", "pythonic"]
)
@pytest.mark.parametrize("text", ["", "46", '{"answer": 46}', "[1, 2]", "a <b> c"])
def test_a_text_without_a_call_is_content(name, text):
    reply = parsed(name, text)

    assert (reply.content, calls(reply), reply.is_malformed) == (text, [], False)


def test_without_tools_a_call_is_text():
    assert parsed("hermes", HERMES, tools=()).content == HERMES


@pytest.mark.parametrize(
    ("name", "prompt", "text", "reasoning", "content"),
    [
        ("qwen3", "", "<think>\nhm\n</think>\n\nyes", "hm", "yes"),
        ("qwen3", "<think>\n", "hm</think>yes", "hm", "yes"),
        ("qwen3", "", "yes", None, "yes"),
        ("qwen3", "<think>\n\n</think>\n\n", "yes", None, "yes"),
        ("qwen3", "<think>\n", "hm", "hm", ""),
        ("qwen3", "", "<think>\n\n</think>\n\nyes", None, "yes"),
        ("deepseek_r1", "", "hm</think>yes", "hm", "yes"),
        ("deepseek_r1", "", "hm", "hm", ""),
        ("deepseek_r1", "<think></think>", "yes", None, "yes"),
    ],
)
def test_reasoning_is_what_stands_between_its_marks(name, prompt, text, reasoning, content):
    reply = parsed(name, text, prompt=prompt)

    assert (reply.reasoning, reply.content) == (reasoning, content)


def parser_for(template, *, response_template=None, **settings):
    tokenizer = make_tiny_tokenizer(chat_template=template)
    if response_template is not None:
        tokenizer.response_template = response_template
    return reply_parser(ChatFormat(tokenizer), ModelSettings(**settings))


def test_the_chat_template_says_how_replies_are_written():
    thinks = "{# </think> <tool_call> #}" + CHAT_TEMPLATE
    reply = parser_for(thinks).parse("<think>hm</think>" + HERMES, prompt="", tools=[TOOL])

    assert (reply.reasoning, calls(reply)) == ("hm", [("look_up", {"word": "tea"})])


def test_a_template_that_writes_keys_and_values_gets_the_parser_of_glm():
    parser = parser_for("{# <tool_call>{name} <arg_key> #}" + CHAT_TEMPLATE)
    reply = parser.parse(GLM, prompt="", tools=[TOOL])

    assert calls(reply) == [("look_up", {"word": "7", "count": 7})]


def test_deepseek_r1_does_not_silence_a_model_that_has_no_mark_for_reasoning(caplog):
    parser = parser_for(CHAT_TEMPLATE, reasoning_parser="deepseek_r1", tool_call_parser="hermes")
    silent = parser.parse("I look.\n" + HERMES, prompt="", tools=[TOOL])
    spelled = parser.parse("hm</think>yes", prompt="", tools=[TOOL])  # letter by letter

    assert (silent.content, calls(silent)) == ("I look.", [("look_up", {"word": "tea"})])
    assert silent.reasoning is None
    assert (spelled.reasoning, spelled.content) == ("hm", "yes")
    assert caplog.text.count("reasoning_parser: deepseek_r1") == 1


def test_deepseek_r1_reads_all_as_reasoning_where_the_template_knows_its_end():
    parser = parser_for("{# </think> #}" + CHAT_TEMPLATE, reasoning_parser="deepseek_r1")

    assert parser.parse("cut off", prompt="", tools=[]).reasoning == "cut off"


def test_a_name_wins_over_the_chat_template():
    parser = parser_for("{# <tool_call> #}" + CHAT_TEMPLATE, tool_call_parser="pythonic")

    assert calls(parser.parse('[look_up(word="tea")]', prompt="", tools=[TOOL]))
    assert calls(parser.parse(HERMES, prompt="", tools=[TOOL])) == []


def test_of_a_template_that_knows_no_calls_all_is_content():
    reply = parser_for(CHAT_TEMPLATE).parse(HERMES, prompt="", tools=[TOOL])

    assert reply.content == HERMES


RESPONSES = {
    "version": 1,
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "optional": True},
        "content": {"optional": True},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "optional": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
    },
}


@pytest.mark.skipif(
    "response_template" not in getsource(PreTrainedTokenizerBase),
    reason="this transformers knows no response templates",
)
def test_the_tokenizers_own_response_template_comes_before_its_chat_template():
    parser = parser_for("{# <function= #}" + CHAT_TEMPLATE, response_template=RESPONSES)
    reply = parser.parse("<think>hm</think>I look." + HERMES, prompt="", tools=[TOOL])

    assert (reply.reasoning, reply.content) == ("hm", "I look.")
    assert calls(reply) == [("look_up", {"word": "tea"})]
    assert parser.parse("<tool_call>{", prompt="", tools=[TOOL]).is_malformed


def test_a_parser_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(UnknownComponentError, match="hermes"):
        parser_for(CHAT_TEMPLATE, tool_call_parser="hermess")


def test_a_malformed_call_after_reasoning_leaves_the_whole_reply():
    text = "<think>hm</think>" + HERMES.removesuffix("</tool_call>")
    parser = parser_for(CHAT_TEMPLATE, tool_call_parser="hermes", reasoning_parser="qwen3")
    reply = parser.parse(text, prompt="", tools=[TOOL])

    assert (reply.content, reply.reasoning, reply.is_malformed) == (text, None, True)
