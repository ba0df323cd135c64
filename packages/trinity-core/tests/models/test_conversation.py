"""A conversation that goes on is prompted with recorded ids: the trained ids are the sampled."""

import random

import pytest
from trinity_testing.tiny import CHAT_TEMPLATE

ASK = {"role": "user", "content": "what is the answer"}
MORE = {"role": "user", "content": "and the other"}
LONG = {"role": "user", "content": "word " * 3000}
# Of earlier replies it shows only what follows a thought, as some published templates do.
FORGETS_THOUGHTS = CHAT_TEMPLATE.replace(
    "message['content']",
    "(message['content'].split('</think>')[-1] if message['role'] == 'assistant' and not loop.last"
    " else message['content'])",
)
STRIPS = CHAT_TEMPLATE.replace("message['content']", "message['content'].strip()")


def said(text):
    return {"role": "assistant", "content": text}


def test_the_next_prompt_is_recorded_ids_and_the_rendered_rest(scripted, letters, chat_format):
    reply = letters("the answer")
    model, engine = scripted(reply, letters("no"))
    [first] = model.chat([ASK])
    [second] = model.chat([ASK, said(first.response_text), MORE])
    rest = chat_format.encode(
        "\n<|im_start|>user\nand the other<|im_end|>\n<|im_start|>assistant\n"
    )
    assert list(engine.requests[1].prompt_token_ids) == first.tokens.tolist() + rest
    whole = chat_format.encode(second.prompt_text)
    assert list(engine.requests[1].prompt_token_ids) != whole
    assert chat_format.decode(whole) == chat_format.decode(engine.requests[1].prompt_token_ids)


def test_a_reply_that_was_cut_gets_its_end_from_the_template(scripted, letters, chat_format):
    model, engine = scripted(letters("the ans", ends=False), letters("no"))
    [first] = model.chat([ASK])
    model.chat([ASK, said(first.response_text), MORE])
    rest = engine.requests[1].prompt_token_ids[len(first.tokens) :]
    assert chat_format.decode(rest, skip_special_tokens=False).startswith("<|im_end|>\n")


def test_the_chain_grows_by_every_reply(scripted, letters):
    model, engine = scripted(*[letters(f"the answer {i}") for i in range(4)])
    messages = [ASK]
    for _ in range(4):
        [experience] = model.chat(messages)
        before = experience.tokens.tolist()
        messages = [*messages, said(experience.response_text), MORE]
    for earlier, later in zip(engine.requests, engine.requests[1:], strict=False):
        length = len(earlier.prompt_token_ids)
        assert later.prompt_token_ids[:length] == earlier.prompt_token_ids
    assert before[: len(engine.requests[3].prompt_token_ids)] == list(
        engine.requests[3].prompt_token_ids
    )


@pytest.mark.parametrize("template", [CHAT_TEMPLATE, STRIPS])
def test_a_stripped_reply_is_still_the_recorded_one(template, scripted, letters):
    model, engine = scripted(letters(" the answer \n"), letters("no"), template=template)
    [first] = model.chat([ASK])
    model.chat([ASK, said(first.response_text.strip()), MORE])
    assert list(engine.requests[1].prompt_token_ids[: len(first.tokens)]) == first.tokens.tolist()


def test_another_reply_than_the_recorded_one_is_tokenised(scripted, letters, chat_format):
    model, engine = scripted(letters("the answer"), letters("no"))
    model.chat([ASK])
    [second] = model.chat([ASK, said("something else"), MORE])
    assert list(engine.requests[1].prompt_token_ids) == chat_format.encode(second.prompt_text)


def test_a_template_that_rewrites_history_breaks_the_chain(scripted, letters, chat_format):
    model, engine = scripted(
        letters("<think>hm</think>yes"), letters("no"), template=FORGETS_THOUGHTS
    )
    [first] = model.chat([ASK])
    [second] = model.chat([ASK, said(first.response_text), MORE])
    assert "hm" not in second.prompt_text
    assert list(engine.requests[1].prompt_token_ids) == chat_format.encode(second.prompt_text)


def test_each_of_n_replies_can_be_gone_on_with(scripted, letters, chat_format):
    model, engine = scripted(letters("a"), letters("b"), letters("c"), letters("d"))
    [one] = model.chat([ASK])
    [two] = model.chat([ASK])
    model.chat([ASK, said(one.response_text), MORE])
    model.chat([ASK, said(two.response_text), MORE])
    assert list(engine.requests[2].prompt_token_ids[: len(one.tokens)]) == one.tokens.tolist()
    assert list(engine.requests[3].prompt_token_ids[: len(two.tokens)]) == two.tokens.tolist()


def test_other_tools_are_another_conversation(scripted, letters, chat_format):
    model, engine = scripted(letters("the answer"), letters("no"))
    [first] = model.chat([ASK])
    tools = [{"type": "function", "function": {"name": "f"}}]
    [second] = model.chat([ASK, said(first.response_text), MORE], tools=tools)
    assert list(engine.requests[1].prompt_token_ids) == chat_format.encode(second.prompt_text)


def test_runs_do_not_see_each_others_conversations(scripted, letters, chat_format):
    model, engine = scripted(letters("the answer"), letters("no"))
    [first] = model.chat([ASK])
    model.begin_run(model._run.key)
    [second] = model.chat([ASK, said(first.response_text), MORE])
    assert list(engine.requests[1].prompt_token_ids) == chat_format.encode(second.prompt_text)


def test_a_whole_conversation_is_one_experience(scripted, letters):
    one, two = letters("the answer"), letters("no", ends=False)
    model, _ = scripted(one, two)
    [first] = model.chat([ASK])
    [second] = model.chat([ASK, said("the answer"), MORE])
    experience = model.convert_messages_to_experience([ASK, said("the answer"), MORE, said("no")])
    assert experience.tokens.tolist() == second.tokens.tolist()
    assert experience.prompt_length == first.prompt_length
    between = len(second.tokens) - len(two) - len(first.tokens)
    mask = [True] * len(one) + [False] * between + [True] * len(two)
    assert experience.action_mask.tolist() == mask
    logprobs = [*first.logprobs.tolist(), *[0.0] * between, *second.logprobs.tolist()]
    assert experience.logprobs.tolist() == logprobs
    assert [m["role"] for m in experience.messages] == ["user", "assistant", "user", "assistant"]


def test_what_follows_the_last_reply_is_masked(scripted, letters, chat_format):
    one = letters("the answer")
    model, _ = scripted(one)
    [first] = model.chat([ASK])
    experience = model.convert_messages_to_experience([ASK, said("the answer"), MORE, said("hm")])
    rest = experience.tokens[len(first.tokens) :]
    text = "\n<|im_start|>user\nand the other<|im_end|>\n<|im_start|>assistant\nhm<|im_end|>\n"
    assert chat_format.decode(rest, skip_special_tokens=False) == text
    assert experience.action_mask.tolist() == [True] * len(one) + [False] * len(rest)


def test_a_conversation_that_was_not_recorded_is_masked_whole(scripted, chat_format):
    model, _ = scripted()
    experience = model.convert_messages_to_experience([ASK, said("yes")])
    head = "<|im_start|>user\nwhat is the answer<|im_end|>\n<|im_start|>assistant\n"
    assert experience.prompt_length == len(chat_format.encode(head))
    assert not experience.action_mask.any()
    assert experience.response_text == "yes<|im_end|>\n"


@pytest.mark.parametrize("messages", [[LONG, said("no")], [ASK, {**LONG, "role": "assistant"}]])
def test_a_conversation_that_the_log_called_cut_off_was_trained_whole(messages, scripted, letters):
    model, engine = scripted(letters("no"), max_model_len=48)
    model.chat([LONG])
    whole = model.convert_messages_to_experience(messages)
    assert len(engine.requests[0].prompt_token_ids) == 47
    assert whole.truncate_status == "prompt_truncated"
    assert len(whole.tokens) == 48
    assert len(whole.logprobs) == whole.response_length > 0
    assert not whole.action_mask.any()


def test_a_broken_chain_keeps_its_last_link(scripted, letters):
    one, two = letters("<think>hm</think>yes"), letters("<think>so</think>no")
    model, _ = scripted(one, two, template=FORGETS_THOUGHTS)
    [first] = model.chat([ASK])
    messages = [ASK, said(first.response_text), MORE]
    [second] = model.chat(messages)
    experience = model.convert_messages_to_experience([*messages, said(second.response_text)])
    assert experience.tokens.tolist() == second.tokens.tolist()
    assert experience.action_mask.tolist() == [True] * len(two)


def test_random_conversations_train_on_sampled_ids_only(scripted, chat_format):
    rng = random.Random(0)
    for _ in range(30):
        replies = [
            [rng.randrange(3, 384) for _ in range(rng.randrange(1, 12))] + [2] * rng.randrange(2)
            for _ in range(3)
        ]
        model, _ = scripted(*replies)
        messages = [ASK]
        for reply in replies:
            [experience] = model.chat(messages)
            assert experience.tokens.tolist()[experience.prompt_length :] == reply
            messages = [*messages, said(experience.response_text), MORE]
        whole = model.convert_messages_to_experience(messages[:-1])
        trained = whole.tokens[whole.prompt_length :][whole.action_mask].tolist()
        assert trained == [token for reply in replies for token in reply]


def test_a_last_message_of_the_assistant_is_how_the_reply_begins(scripted, letters, chat_format):
    model, engine = scripted(letters("46"), letters("no"))
    [first] = model.chat([ASK, said("It is ")])
    assert first.prompt_text.endswith("<|im_start|>assistant\nIt is ")
    model.chat([ASK, said("It is 46"), MORE])
    assert list(engine.requests[1].prompt_token_ids[: len(first.tokens)]) == first.tokens.tolist()


def test_a_reply_at_another_temperature_begins_a_new_chain(scripted, letters):
    model, _ = scripted(letters("one"), letters("two"))
    model.chat([ASK], temperature=0.5)
    messages = [ASK, said("one"), MORE]
    [second] = model.chat(messages, temperature=1.0)
    whole = model.convert_messages_to_experience([*messages, said("two")])
    assert whole.temperature == 1.0
    assert whole.prompt_length == second.prompt_length
    assert whole.action_mask.all()


def test_an_experience_says_which_of_its_tokens_are_of_which_version(scripted, letters):
    model, engine = scripted(letters("abc"), letters("def"), letters("ghi"))
    messages = [ASK]
    for version, spans in [(3, ()), (3, ()), (3, ((0, 3), (2, 5)))]:
        engine.version, engine.spans = version, spans
        [reply] = model.chat(messages)
        messages = [*messages, said(reply.response_text), MORE]
    assert reply.info["model_version"] == 3
    assert reply.info["version_spans"] == [[0, 3], [2, 5]]
    assert reply.info["model_version_drift"] == 2

    whole = model.convert_messages_to_experience(messages[:-1])
    third = len(engine.requests[2].prompt_token_ids) - whole.prompt_length
    assert whole.info["model_version"] == 3
    assert whole.info["version_spans"] == [[0, 3], [third + 2, 5]]


def test_replies_of_different_versions_are_stretches_of_their_conversation(scripted, letters):
    model, engine = scripted(letters("abc"), letters("def"))
    [first] = model.chat([ASK])
    engine.version = 4
    [second] = model.chat([ASK, said(first.response_text), MORE])
    assert first.info == {"model_version": 0, "reply_names": [[0, "0-0"]]}
    assert second.info == {"model_version": 4, "reply_names": [[0, "1-0"]]}
    whole = model.convert_messages_to_experience(
        [ASK, said(first.response_text), MORE, said(second.response_text)]
    )
    start = len(engine.requests[1].prompt_token_ids) - whole.prompt_length
    assert whole.info == {
        "model_version": 0,
        "version_spans": [[0, 0], [start, 4]],
        "model_version_drift": 4,
        "reply_names": [[0, "0-0"], [start, "1-0"]],
    }
