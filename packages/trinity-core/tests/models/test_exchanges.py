"""A chat over an API goes on by recorded ids, with tools and reasoning, or it says why not."""

import json
from dataclasses import replace

import pytest
from trinity.common.ports import RunKey
from trinity.errors import PromptTooLongError
from trinity_testing.checks.replies import TOOL
from trinity_testing.tiny import CHAT_TEMPLATE

ASK = {"role": "user", "content": "what is tea"}
MORE = {"role": "user", "content": "and the other"}
CALL = '<tool_call>{"name":"look_up","arguments":{"word":"tea","count":2}}</tool_call>'
# Writes calls anew with its own spaces, and shows the thoughts that come back.
WRITES_CALLS = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' -}}"
    "{%- if message.reasoning_content -%}"
    "{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' -}}{%- endif -%}"
    "{{- message.content -}}"
    "{%- for call in message.tool_calls -%}"
    "{{- '\n<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' -}}{%- endfor -%}"
    "{{- '<|im_end|>' + '\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
LEAVES_OUT_CONTENT = WRITES_CALLS.replace(
    "{{- message.content -}}",
    "{%- if not message.tool_calls -%}{{- message.content -}}{%- endif -%}",
)


@pytest.fixture
def talk(scripted, letters):
    """Return a function: texts of replies -> (ask, engine)."""

    def make(*replies, template=WRITES_CALLS, ends=True, **settings):
        spelled = [letters(text, ends=ends) for text in replies]
        model, engine = scripted(*spelled, template=template, enable_history=True, **settings)
        model.begin_run(RunKey(batch="1"))

        def ask(messages, *, tools=(TOOL,), options=None, max_calls=None, **sampling):
            exchanges = model.exchanges
            temperature = sampling.get("temperature")
            asked = exchanges.prompt(
                messages, tools=tools, options=options, temperature=temperature
            )
            call = exchanges.send(asked, **sampling)
            replies = exchanges.replies(call, call.future.result(), max_calls=max_calls)
            for reply in replies:
                exchanges.keep(reply)
            return replies[0] if len(replies) == 1 else replies

        return ask, engine

    return make


def served(reply, **changes):
    """Return the message as an API serves it, and as a client sends it back."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, indent=1)},
        }
        for call in reply.parsed.tool_calls
    ]
    message = {"role": "assistant", "content": reply.parsed.content or None, "refusal": None}
    return message | ({"tool_calls": calls} if calls else {}) | changes


def answer(reply, text="hot"):
    return {"role": "tool", "tool_call_id": reply.parsed.tool_calls[0].id, "content": text}


def test_a_tool_call_that_comes_back_in_another_spelling_goes_on(talk, chat_format):
    ask, engine = talk("I look." + CALL, "Tea is hot.")
    first = ask([ASK])
    second = ask([ASK, served(first), answer(first)])
    recorded = first.experience.tokens.tolist()
    asked = list(engine.requests[1].prompt_token_ids)
    rest = "\n<|im_start|>tool\nhot<|im_end|>\n<|im_start|>assistant\n"

    assert first.finish_reason == "tool_calls"
    assert first.parsed.content == "I look."
    assert asked == recorded + chat_format.encode(rest)
    assert second.experience.info["continues"] == first.name
    assert "chain_broken" not in second.experience.info
    assert second.experience.metrics == {"api/continued_ratio:mean": 1.0, "api/continued:sum": 1.0}


def test_a_call_whose_content_the_template_leaves_out_goes_on(talk):
    ask, engine = talk(CALL, "Tea is hot.", template=LEAVES_OUT_CONTENT)
    first = ask([ASK])
    ask([ASK, served(first), answer(first)])
    recorded = first.experience.tokens.tolist()

    assert list(engine.requests[1].prompt_token_ids[: len(recorded)]) == recorded


def broken(reply):
    return reply.experience.info.get("chain_broken"), "continues" in reply.experience.info


def test_content_beside_a_call_that_the_template_leaves_out_breaks_the_chain(talk):
    ask, _ = talk("I look." + CALL, "Tea is hot.", template=LEAVES_OUT_CONTENT)
    first = ask([ASK])

    assert broken(ask([ASK, served(first), answer(first)])) == ("rewritten", False)


def test_no_chat_goes_on_with_the_ids_of_calls_that_were_left_out(talk, chat_format):
    ask, engine = talk(CALL * 2, CALL, "Tea is hot.")
    first = ask([ASK], max_calls=1)
    chat = [ASK, served(first), answer(first)]
    second = ask(chat, max_calls=1)
    third = ask([*chat, served(second), answer(second)], max_calls=1)
    asked = engine.requests[1].prompt_token_ids

    assert [len(one.parsed.tool_calls) for one in (first, second)] == [1, 1]
    assert broken(second) == ("calls_left_out", False)
    assert chat_format.decode(asked, skip_special_tokens=False).count("look_up") == 1
    assert broken(third) == (None, True)  # nothing of the second was left out


def test_reasoning_that_comes_back_goes_on_and_what_is_dropped_breaks_the_chain(talk):
    template = "{# </think> #}" + WRITES_CALLS
    ask, _ = talk("<think>hm</think>yes", "a", "b", template=template)
    first = ask([ASK])
    assert (first.parsed.reasoning, first.parsed.content) == ("hm", "yes")

    returned = served(first, reasoning_content="hm")
    assert broken(ask([ASK, returned, MORE])) == (None, True)
    assert broken(ask([ASK, served(first), MORE])) == ("reasoning_dropped", False)


def test_keep_reasoning_goes_on_all_the_same(talk):
    template = "{# </think> #}" + WRITES_CALLS
    ask, _ = talk("<think>hm</think>yes", "a", template=template, keep_reasoning=True)
    first = ask([ASK])

    assert broken(ask([ASK, served(first), MORE])) == (None, True)


@pytest.mark.parametrize(
    ("keeps", "expected"), [(True, (None, True)), (False, ("rewritten", False))]
)
def test_keep_reasoning_goes_on_where_a_new_question_takes_all_thoughts_away(keeps, expected, talk):
    template = "{# </think> #}{%- set at = namespace(question=0) -%}{%- for message in messages -%}"
    template += (
        "{%- if message.role == 'user' -%}{%- set at.question = loop.index0 -%}{%- endif -%}"
    )
    template += "{%- endfor -%}" + WRITES_CALLS.replace(
        "if message.reasoning_content", "if message.reasoning_content and loop.index0 > at.question"
    )
    thinks = "<think>hm</think>"
    ask, engine = talk(thinks + CALL, thinks + "hot", "a", template=template, keep_reasoning=keeps)
    first = ask([ASK])
    chat = [ASK, served(first, reasoning_content="hm"), answer(first)]
    second = ask(chat)
    assert broken(second) == (None, True)

    third = ask([*chat, served(second, reasoning_content="hm"), MORE])
    assert broken(third) == expected
    recorded = second.experience.tokens.tolist()
    assert (list(engine.requests[2].prompt_token_ids[: len(recorded)]) == recorded) == keeps


def test_reasoning_that_a_client_changed_breaks_the_chain(talk):
    ask, _ = talk("<think>hm</think>yes", "a", template="{# </think> #}" + WRITES_CALLS)
    first = ask([ASK])

    assert broken(ask([ASK, served(first, reasoning="ha"), MORE])) == ("edited", False)


@pytest.mark.parametrize(
    "change",
    [
        lambda first, reply: [{**first, "content": "what is milk"}, reply],
        lambda first, reply: [first, {**reply, "content": "something else"}],
        lambda first, reply: [{"role": "system", "content": "Be brief."}, first, reply],
    ],
    ids=["an old turn", "the reply", "a turn before all"],
)
def test_what_a_client_changes_breaks_the_chain(change, talk, chat_format):
    ask, engine = talk("yes it is", "a")
    first = ask([ASK])
    second = ask([*change(ASK, served(first)), MORE])

    assert broken(second) == ("edited", False)
    whole = chat_format.encode(second.experience.prompt_text)
    assert list(engine.requests[1].prompt_token_ids) == whole


def test_an_edit_after_a_recorded_reply_goes_on_with_that_one_and_is_told(talk):
    ask, _ = talk("yes it is", "no it is not", "so")
    first = ask([ASK])
    second = ask([ASK, served(first), MORE])
    edited = {"role": "user", "content": "and another"}

    third = ask([ASK, served(first), edited, served(second), MORE])
    assert broken(third) == ("edited", True)
    assert third.experience.info["continues"] == first.name


def test_other_tools_and_other_options_break_the_chain(talk):
    ask, _ = talk("yes", "a", "b", "c")
    first = ask([ASK])
    chat = [ASK, served(first), MORE]

    assert broken(ask(chat, tools=())) == ("other_tools", False)
    assert broken(ask(chat, options={"style": "x"})) == ("other_options", False)
    assert broken(ask(chat, options={"enable_thinking": True})) == ("other_options", False)


def test_another_temperature_ends_the_chain_though_the_ids_go_on(talk):
    ask, _ = talk("yes", "a")
    first = ask([ASK])

    second = ask([ASK, served(first), MORE], temperature=0.5)
    assert broken(second) == ("temperature", True)
    assert second.conversation.before is None


def test_a_call_that_was_cut_has_no_end(talk):
    ask, _ = talk(CALL, "a", ends=False)
    first = ask([ASK])

    assert broken(ask([ASK, served(first), answer(first)])) == ("no_end", False)


def test_a_reply_that_was_cut_gets_its_end_from_the_template(talk, chat_format):
    ask, engine = talk("the ans", "a", ends=False)
    first = ask([ASK])
    assert broken(ask([ASK, served(first), MORE])) == (None, True)
    rest = engine.requests[1].prompt_token_ids[len(first.experience.tokens) :]

    assert chat_format.decode(rest, skip_special_tokens=False).startswith("<|im_end|>\n")


def test_an_end_that_belongs_to_a_later_message_is_not_the_replys(talk):
    # This template closes no message of the assistant; the next <|im_end|> is the user's.
    template = WRITES_CALLS.replace(
        "{{- '<|im_end|>' + '\n' -}}",
        "{%- if message.role != 'assistant' -%}{{- '<|im_end|>' + '\n' -}}{%- endif -%}",
    )
    ask, _ = talk("yes", "a", template=template)
    first = ask([ASK])

    assert broken(ask([ASK, served(first), MORE])) == ("no_end", False)


def test_a_new_conversation_is_no_break(talk):
    ask, _ = talk("yes", "a", "b")
    ask([ASK])
    shown = [{"role": "user", "content": "say so"}, {"role": "assistant", "content": "so"}]

    assert broken(ask([MORE])) == (None, False)
    assert ask([*shown, ASK]).experience.metrics == {}


def test_the_same_question_twice_is_two_chains(talk):
    ask, engine = talk("yes", "no", "a", "b")
    one, two = ask([ASK]), ask([ASK])
    ask([ASK, served(one), MORE])
    ask([ASK, served(two), MORE])
    for reply, request in zip((one, two), engine.requests[2:], strict=True):
        recorded = reply.experience.tokens.tolist()
        assert list(request.prompt_token_ids[: len(recorded)]) == recorded


def test_an_empty_reply_is_an_empty_content(talk):
    ask, _ = talk("", "a")
    first = ask([ASK])

    assert (first.parsed.content, first.finish_reason) == ("", "stop")
    assert broken(ask([ASK, served(first), MORE])) == (None, True)


def test_a_malformed_call_is_served_whole_and_noted(talk):
    ask, _ = talk(CALL.removesuffix("</tool_call>"))
    first = ask([ASK])

    assert first.parsed.content == CALL.removesuffix("</tool_call>")
    assert first.finish_reason == "stop"
    assert first.experience.info["malformed_tool_call"] is True


def test_special_tokens_that_a_model_says_are_not_served(scripted, letters):
    turn_start = 1  # <|im_start|>
    spelled = [*letters("yes", ends=False), turn_start, *letters("no")]
    model, _ = scripted(spelled)
    call = model.exchanges.send(model.exchanges.prompt([ASK]))
    [reply] = model.exchanges.replies(call, call.future.result())

    assert reply.parsed.content == "yesno"


def test_a_chat_that_is_too_long_is_never_cut(talk):
    ask, engine = talk("a", max_prompt_tokens=6)
    with pytest.raises(PromptTooLongError, match="max_prompt_tokens"):
        ask([ASK])
    assert engine.requests == []


def test_what_was_not_kept_is_neither_trained_nor_gone_on_with(scripted, letters):
    model, _ = scripted(letters("yes"), template=CHAT_TEMPLATE, enable_history=True)
    call = model.exchanges.send(model.exchanges.prompt([ASK]))
    [reply] = model.exchanges.replies(call, call.future.result())

    assert model.extract_experience_from_history() == []
    model.exchanges.keep(reply)
    assert model.extract_experience_from_history() == [reply.experience]


@pytest.mark.parametrize(
    ("text", "content"),
    [("a END b END", "a END b "), ("END", ""), ("a END", "a "), ("ENDEND", "END")],
)
def test_a_reply_is_served_up_to_the_stop_string_that_ended_it(
    scripted, letters, text, content
) -> None:
    # an earlier match came before the least length of a reply
    model, _ = scripted(letters(text, ends=False), enable_history=True)
    model.begin_run(RunKey(batch="1"))
    call = model.exchanges.send(model.exchanges.prompt([ASK]), stop=["END"], min_tokens=9)
    [completion] = call.future.result()
    ended = replace(completion, finish_reason="stop", stop_reason="END")

    [reply] = model.exchanges.replies(call, [ended])

    assert reply.parsed.content == content
