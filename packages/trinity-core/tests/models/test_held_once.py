"""What a run holds of a chat that goes on: each message and each token once."""

from __future__ import annotations

import json
from dataclasses import replace

from trinity.common.models.chat import Chat
from trinity_testing.tiny import CHAT_TEMPLATE


def test_a_turn_shares_the_messages_that_are_spelled_alike() -> None:
    call = {"function": {"name": "f", "arguments": {"a": 1, "b": 2}}}
    before = Chat(messages=({"role": "user", "content": "Hi"}, {"role": "x", "calls": [call]}))
    chat = Chat(
        messages=(
            {"role": "user", "content": "Hi"},
            {"role": "x", "calls": [{"function": {"name": "f", "arguments": {"b": 2, "a": 1}}}]},
            {"role": "user", "content": "Go on"},
        )
    )

    shared = chat.sharing(before)

    assert shared == chat
    assert shared.messages[0] is before.messages[0]
    assert shared.messages[1] is chat.messages[1]  # the order of arguments is rendered
    assert Chat(messages=({"n": 2},)).sharing(Chat(messages=({"n": 2.0},))).messages == ({"n": 2},)
    assert str(Chat(messages=({"n": 2},)).sharing(Chat(messages=({"n": 2.0},))).messages[0]) == (
        "{'n': 2}"
    )


def test_a_chat_that_comes_anew_over_json_holds_its_texts_once(scripted, letters) -> None:
    model, _ = scripted(letters("one"), letters("two"), letters("three"))
    messages, replies = [{"role": "user", "content": "what is " + "tea " * 20}], []
    for more in ("and milk", "and water", ""):
        sent = json.loads(json.dumps(messages))  # other objects each time
        call = model.exchanges.send(model.exchanges.prompt(sent))
        [reply] = model.exchanges.replies(call, call.future.result())
        model.exchanges.keep(reply)
        replies.append(reply)
        messages += [reply.parsed.message(), {"role": "user", "content": more}]

    first, second, third = (reply.conversation for reply in replies)
    assert third.keys[:2] == first.keys
    assert all(mine is theirs for mine, theirs in zip(third.keys, second.keys, strict=False))
    assert second.prompt_text.startswith(first.prompt_text + first.reply_text)
    assert second.added_text == second.prompt_text.removeprefix(first.prompt_text)
    assert third.prompt_text == replies[2].experience.prompt_text
    assert third.added_text == third.prompt_text.removeprefix(second.prompt_text)
    assert first.ids.itemsize == 4


def test_a_reply_holds_what_was_sampled_in_its_conversation_alone(scripted, letters) -> None:
    model, _ = scripted(letters("one"), letters("two"))
    messages = [{"role": "user", "content": "what is tea"}]
    for _ in range(2):  # the second goes on with the first
        call = model.exchanges.send(model.exchanges.prompt(messages))
        [answer] = call.future.result()
        [reply] = model.exchanges.replies(call, [answer])
        model.exchanges.keep(reply)
        messages += [reply.parsed.message(), {"role": "user", "content": "and milk"}]

        assert len(answer.token_ids) > 0
        assert reply.completion == answer
        assert reply.num_sampled == len(answer.token_ids)
        assert (reply.outcome.token_ids, reply.outcome.logprobs) == ((), ())
        assert reply.text is reply.parsed.content


def test_a_plain_text_that_goes_on_holds_its_completion(scripted, letters) -> None:
    model, _ = scripted(letters("one"))
    call = model.exchanges.send_text("what is")
    [answer] = call.future.result()
    [reply] = model.exchanges.replies(call, [answer])
    assert reply.completion == answer


def test_conversations_that_part_are_found_each_by_its_own_messages(scripted, letters) -> None:
    model, _ = scripted(*[letters(word) for word in ("one", "two", "red", "ten")])
    start, served = {"role": "user", "content": "go"}, []
    for more in ([], ["left"], ["right"], ["up"]):
        said = [start] + [{"role": "user", "content": word} for word in more]
        call = model.exchanges.send(model.exchanges.prompt(said))
        [reply] = model.exchanges.replies(call, call.future.result())
        model.exchanges.keep(reply)
        served.append([*said, reply.parsed.message()])

    for number, messages in enumerate(served):
        asked = model.exchanges.prompt([*messages, {"role": "user", "content": "on"}])
        assert asked.continues is not None
        assert asked.continues.name == f"{number}-0"


def test_a_prompt_that_is_rendered_anew_holds_all_of_its_text(scripted, letters) -> None:
    forgets = CHAT_TEMPLATE.replace("message['content']", "message['content'][-9:]", 1)
    numbered = "{{ messages | length }}" + forgets
    model, _ = scripted(letters("one"), letters("two"), template=numbered)
    ask = {"role": "user", "content": "what is tea"}
    [first] = model.chat([ask])
    [second] = model.chat(
        [ask, {"role": "assistant", "content": first.response_text}, {**ask, "content": "more"}]
    )
    assert first.prompt_text.startswith("1<")
    assert second.prompt_text.startswith("3<")


def test_a_chat_that_goes_on_is_printed_and_compared_by_its_own_part_alone(
    scripted, letters
) -> None:
    """Each chat knows the one before it twice; printed so, thirty turns would never end."""
    num_turns = 30
    model, _ = scripted(*[letters("ok")] * num_turns, max_model_len=4096)
    messages, lengths = [{"role": "user", "content": "go"}], []
    for _ in range(num_turns):
        call = model.exchanges.send(model.exchanges.prompt(messages))
        [reply] = model.exchanges.replies(call, call.future.result())
        model.exchanges.keep(reply)
        messages = [*messages, reply.parsed.message(), {"role": "user", "content": "go"}]
        lengths.append(len(repr(reply.conversation)))

    assert lengths[-1] < num_turns * lengths[0]
    assert reply.conversation.before is not None
    assert reply.conversation == replace(reply.conversation)


def test_only_the_texts_that_other_runs_say_too_are_kept_for_them(scripted, letters) -> None:
    model, _ = scripted(letters("one"), letters("two"))
    kept = model.chat_format._texts
    before = len(kept)
    shots = [{"role": "user", "content": "2 + 2"}, {"role": "assistant", "content": "4"}]
    messages = [*shots, {"role": "user", "content": "3 + 3"}]

    [first] = model.chat(messages)
    assert len(kept) == before + 1  # examples are of all runs
    said = {"role": "assistant", "content": first.response_text}
    model.chat([*messages, said, {"role": "user", "content": "and 4 + 4"}])

    assert len(kept) == before + 1
    assert max(map(len, kept)) == 16  # bytes, not the chat once more
