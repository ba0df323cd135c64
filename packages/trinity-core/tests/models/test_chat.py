"""What a workflow gets from the model, and how its arguments reach the engine."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
import torch
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.ports import RunKey
from trinity.errors import ConfigError, ModelError

HELLO = [{"role": "user", "content": "hello"}]


def test_a_reply_is_an_experience_with_the_engines_ids(scripted, letters, chat_format):
    reply = letters("the answer")
    assert chat_format.encode("the answer") != reply[:-1]  # the encoder would give other ids
    model, engine = scripted(reply)
    engine.version = 4
    [experience] = model.chat(HELLO)
    prompt = chat_format.encode("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n")
    assert experience.tokens.tolist() == prompt + reply
    assert experience.prompt_length == len(prompt)
    assert len(experience.logprobs) == experience.response_length == len(reply)
    assert experience.logprobs[:2].tolist() == pytest.approx([-0.1, -0.2])
    assert experience.response_text == "the answer"
    assert experience.prompt_text.endswith("assistant\n")
    assert experience.info == {"model_version": 4, "reply_names": [[0, "0-0"]]}
    assert experience.truncate_status is None
    assert experience.action_mask.tolist() == [True] * len(reply)


def test_n_replies_are_n_experiences_of_one_request(scripted, letters):
    model, engine = scripted(letters("a"))
    assert len(model.chat(HELLO, n=3, temperature=0.5)) == 3
    [request] = engine.requests
    assert (request.n, request.temperature) == (3, 0.5)


def test_arguments_win_over_the_settings(scripted, letters):
    model, engine = scripted(
        letters("a"), letters("a"), temperature=0.7, top_p=0.9, top_k=5, min_response_tokens=2
    )
    model.chat(HELLO)
    model.chat(HELLO, temperature=0.0, top_p=0.5, top_k=-1, max_tokens=7, min_tokens=0, logprobs=1)
    first, second = engine.requests
    names = ("temperature", "top_p", "top_k", "max_new_tokens", "min_new_tokens")
    assert [getattr(first, name) for name in names] == [0.7, 0.9, 5, 32, 2]
    assert [getattr(second, name) for name in names] == [0.0, 0.5, -1, 7, 0]


def test_an_argument_that_is_none_means_the_setting(scripted, letters):
    model, engine = scripted(letters("a"), temperature=0.7)
    model.chat(HELLO, temperature=None, n=None)
    assert (engine.requests[0].temperature, engine.requests[0].n) == (0.7, 1)


def test_an_unknown_argument_is_refused(scripted, golden):
    model, _ = scripted()
    with pytest.raises(ModelError) as caught:
        model.chat(HELLO, temprature=1.0)
    golden(str(caught.value), "chat_argument_unknown")


def test_settings_come_from_the_first_section_that_has_them():
    rollout = SimpleNamespace(temperature=None, top_p=0.5, max_model_len=None)
    section = SimpleNamespace(temperature=0.3, top_p=0.9, max_model_len=64, model_path="m")
    settings = ModelSettings.of(rollout, section)
    assert (settings.temperature, settings.top_p, settings.max_model_len) == (0.3, 0.5, 64)


def test_requests_of_a_run_are_counted(scripted, letters):
    model, engine = scripted(*[letters("a")] * 5)
    run = model.for_run(RunKey(batch="3", task=1, run=2))
    run.chat(HELLO)
    run.generate("hello")
    run.clone_with_isolated_history().chat(HELLO)
    assert [r.key for r in engine.requests] == [
        RunKey(batch="3", task=1, run=2, request=i) for i in range(3)
    ]
    run.begin_run(RunKey(batch="4"))
    run.chat(HELLO)
    model.for_run(RunKey(batch="5")).chat(HELLO)
    assert [r.key for r in engine.requests[3:]] == [RunKey(batch="4"), RunKey(batch="5")]


def test_chat_async_gives_the_same(scripted, letters):
    model, _ = scripted(letters("one"), letters("two"))

    async def both():
        return await asyncio.gather(model.chat_async(HELLO), model.chat_async(HELLO))

    assert [e.response_text for [e] in asyncio.run(both())] == ["one", "two"]


def test_generate_continues_plain_texts(scripted, letters, chat_format):
    model, engine = scripted(letters("a"), letters("b"))
    replies = model.generate(["one", "two"], n=2)
    assert [e.response_text for e in replies] == ["a", "a", "b", "b"]
    assert engine.requests[0].prompt_token_ids == tuple(chat_format.encode("one"))
    assert asyncio.run(scripted(letters("c"))[0].generate_async("x"))[0].response_text == "c"


def test_a_reply_without_end_is_marked(scripted, letters):
    model, _ = scripted(letters("cut", ends=False))
    [experience] = model.chat(HELLO)
    assert experience.truncate_status == "response_truncated"


def _replies(model, call):
    if call == "chat_async":
        return asyncio.run(model.chat_async(HELLO, n=2))
    if call == "history":
        model.chat(HELLO, n=2)
        return model.extract_experience_from_history()
    return model.generate("hello", n=2) if call == "generate" else model.chat(HELLO, n=2)


@pytest.mark.parametrize("call", ["chat", "chat_async", "generate", "history"])
def test_each_reply_has_a_mask_of_its_own_that_can_be_emptied(call, scripted, letters):
    model, _ = scripted(letters("cut", ends=False), enable_history=True)
    first, second = _replies(model, call)
    first.action_mask.zero_()

    assert first.action_mask.tolist() == [False] * first.response_length
    assert second.action_mask.tolist() == [True] * second.response_length
    assert second.action_mask.dtype == torch.bool


def test_what_a_workflow_masks_in_a_reply_leaves_the_conversation_as_it_was(scripted, letters):
    model, _ = scripted(letters("cut", ends=False), enable_history=True)
    [reply] = model.chat(HELLO)
    reply.action_mask.zero_()
    messages = [*HELLO, {"role": "assistant", "content": reply.response_text}]
    whole = model.convert_messages_to_experience(messages)

    assert whole.action_mask.all()
    assert model.extract_experience_from_history() == [reply]


def test_a_prompt_that_is_too_long_is_cut_marked_and_not_trained_on(scripted, letters, chat_format):
    model, engine = scripted(letters("a"), max_prompt_tokens=6)
    [experience] = model.chat(HELLO)
    whole = chat_format.encode(experience.prompt_text)
    assert list(engine.requests[0].prompt_token_ids) == whole[-6:]
    assert experience.prompt_length == 6
    assert experience.truncate_status == "prompt_truncated"
    assert not experience.action_mask.any()


def test_a_prompt_that_is_too_long_is_refused_where_it_may_not_be_cut(scripted, golden):
    model, _ = scripted(max_prompt_tokens=6, enable_prompt_truncation=False)
    with pytest.raises(ModelError) as caught:
        model.chat(HELLO)
    golden(str(caught.value), "prompt_too_long")


def test_history_is_every_call_once(scripted, letters):
    model, _ = scripted(letters("a"), letters("b"), enable_history=True)
    first, second = model.chat(HELLO)[0], model.generate("x")[0]
    assert model.extract_experience_from_history(clear_history=False) == [first, second]
    assert model.extract_experience_from_history() == [first, second]
    assert model.extract_experience_from_history() == []


def test_a_clone_records_apart(scripted, letters):
    model, _ = scripted(letters("a"), letters("b"), enable_history=True)
    clone = model.clone_with_isolated_history()
    model.chat(HELLO)
    assert clone.extract_experience_from_history() == []


def test_history_that_is_off_says_how_to_turn_it_on(scripted, golden):
    model, _ = scripted()
    with pytest.raises(ConfigError) as caught:
        model.extract_experience_from_history()
    golden(str(caught.value), "history_is_off")


def test_openai_clients_are_refused_where_the_endpoint_is_off(scripted, golden):
    model, _ = scripted()
    with pytest.raises(ConfigError) as caught:
        model.get_openai_client()
    golden(str(caught.value), "openai_client")
    with pytest.raises(ConfigError):
        model.get_openai_async_client()


def test_an_engine_that_never_answers_is_given_up(scripted, golden):
    model, engine = scripted(request_timeout_s=0.05)
    futures = []
    engine.submit = lambda _request: futures.append(Future()) or futures[-1]
    with pytest.raises(ModelError) as caught:
        model.chat(HELLO)
    golden(str(caught.value), "engine_gave_no_answer")
    with pytest.raises(ModelError):
        asyncio.run(model.chat_async(HELLO))
    assert [future.cancelled() for future in futures] == [True, True]


def test_the_model_says_what_it_is(scripted):
    model, engine = scripted(name="judge")
    engine.version = 2
    assert (model.model_path, model.model_name, model.model_version) == ("tiny", "judge", 2)
    assert isinstance(model.for_run(RunKey(), engine=engine), ModelWrapper)
