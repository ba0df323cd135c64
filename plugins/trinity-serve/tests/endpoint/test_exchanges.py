"""What is sampled once, what is cancelled, what counts as heard."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from trinity_serve.endpoint.session import Session
from trinity_testing.engines import ScriptedEngine


def wait_until(is_so):
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def send_and_hang_up(endpoint, raw, *, engine):
    """Send a request, wait until the engine has it, and close the connection."""
    parts = urlsplit(endpoint.base_url)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {endpoint.key}"
        f"\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(head.encode() + raw)
        assert engine.has_request.wait(10)


def test_a_client_that_goes_away_cancels_its_request(model_of, held_engine, room):
    engine = held_engine("never heard")
    model = model_of(engine)

    send_and_hang_up(
        model.endpoint(),
        b'{"model": "scripted", "messages": [{"role": "user", "content": "x"}]}',
        engine=engine,
    )

    [(_, future)] = engine.held
    wait_until(future.cancelled)
    wait_until(lambda: room.num_open == 0)
    assert model.extract_experience_from_history() == []


def test_the_end_of_a_run_cancels_what_is_asked(model_of, held_engine, asked, chat):
    engine = held_engine("never heard")
    model = model_of(engine)
    endpoint = model.endpoint()

    with ThreadPoolExecutor() as pool:
        answer = pool.submit(asked, endpoint, chat())
        assert engine.has_request.wait(10)
        model.end_run()

        assert answer.result()[0] == 409
    assert engine.held[0][1].cancelled()


def test_a_retry_joins_the_attempt_that_is_in_flight(model_of, held_engine, asked, chat):
    engine = held_engine("once")
    model = model_of(engine)
    endpoint = model.endpoint()

    with ThreadPoolExecutor() as pool:
        first = pool.submit(asked, endpoint, chat())
        assert engine.has_request.wait(10)
        second = pool.submit(asked, endpoint, chat(), x_stainless_retry_count="1")
        time.sleep(0.05)
        engine.let_go()
        replies = [one.result()[1] for one in (first, second)]

    assert replies[0] == replies[1]
    assert engine.num_samples == 1
    assert len(model.extract_experience_from_history()) == 1


def test_a_retry_after_the_reply_gets_it_again(model_of, asked, chat):
    model = model_of("once")
    endpoint = model.endpoint()

    first = asked(endpoint, chat())
    again = asked(endpoint, chat(), x_stainless_retry_count="1")

    assert first == again
    assert len(model.extract_experience_from_history()) == 1


def test_an_equal_idempotency_key_is_the_same_call(model_of, asked, chat):
    model = model_of("once")
    endpoint = model.endpoint()

    replies = [asked(endpoint, chat(), Idempotency_Key="k") for _ in range(2)]

    assert replies[0] == replies[1]


def test_equal_bodies_are_different_samples(model_of, asked, chat):
    model = model_of("one", "two")
    endpoint = model.endpoint()

    said = [asked(endpoint, chat())[1]["choices"][0]["message"]["content"] for _ in range(2)]

    assert said == ["one", "two"]
    assert len(model.extract_experience_from_history()) == 2


def test_a_retry_of_a_failed_call_is_not_another_calls_reply(model_of, asked, chat):
    engine = ScriptedEngine("one", "two")
    model = model_of(engine)
    endpoint = model.endpoint()
    assert asked(endpoint, chat())[0] == 200
    engine.fails_at = 1
    assert asked(endpoint, chat())[0] == 503
    engine.fails_at = None

    status, body = asked(endpoint, chat(), x_stainless_retry_count="1")

    assert (status, body["choices"][0]["message"]["content"]) == (200, "two")
    model.check_served()  # the last one went well


def test_several_choices_are_an_experience_each(model_of, asked, chat):
    model = model_of("a", "b")

    _, body = asked(model.endpoint(), chat(n=2))
    experiences = model.extract_experience_from_history()

    assert [choice["message"]["content"] for choice in body["choices"]] == ["a", "b"]
    assert [one.eid.suffix for one in experiences] == ["", "choice-1"]


def test_what_is_not_to_be_recorded_is_not(model_of, asked, chat):
    model = model_of("a")

    assert asked(model.endpoint("judge", record=False), chat())[0] == 200

    assert model.extract_experience_from_history() == []


def test_the_label_of_a_model_names_the_agent(model_of, asked, chat):
    model = model_of("a", "b", "c")
    endpoint = model.endpoint("planner")
    asked(endpoint, chat())
    asked(endpoint, chat(model="scripted:critic"))
    asked(endpoint, chat(), X_Trinity_Agent="judge")

    experiences = model.extract_experience_from_history()

    assert [one.info["agent"] for one in experiences] == ["planner", "critic", "judge"]


def test_the_configurations_sampling_wins_for_agents_of_others(model_of, asked, chat):
    engine = ScriptedEngine("a", "b")
    model = model_of(engine, temperature=0.7, top_k=5)
    asked(model.endpoint(), chat(temperature=0.1, top_k=1, min_p=0.3, max_tokens=9))
    own = chat(temperature=0.1, top_k=1, min_p=0.3, max_tokens=9999)
    asked(model.endpoint(force_sampling=False), own)

    forced, free = (exchange.request for exchange in engine.exchanges)

    assert (forced.temperature, forced.top_k, forced.max_new_tokens) == (0.7, 5, 9)
    assert (free.temperature, free.top_k, free.max_new_tokens) == (0.1, 1, 512)
    assert (forced.min_p, free.min_p) == (0.0, 0.3)


def test_ids_and_logprobs_come_when_they_are_asked_for(model_of, asked, chat):
    engine = ScriptedEngine("hey", "")
    model = model_of(engine)

    _, body = asked(model.endpoint(), chat(return_token_ids=True, logprobs=True))

    [exchange], [choice] = engine.exchanges, body["choices"]
    assert choice["token_ids"] == list(exchange.completions[0].token_ids)
    assert body["prompt_token_ids"] == list(exchange.request.prompt_token_ids)
    content = choice["logprobs"]["content"]
    assert [one["token"] for one in content] == ["h", "e", "y", "<|im_end|>"]
    assert [one["logprob"] for one in content] == pytest.approx(exchange.completions[0].logprobs)
    assert content[0]["bytes"] == [104]


def test_an_empty_reply_has_the_content_of_nothing(model_of, asked, chat):
    _, body = asked(model_of(ScriptedEngine("")).endpoint(), chat())

    assert body["choices"][0]["message"]["content"] == ""
    assert body["usage"]["completion_tokens"] == 1  # the end token


def test_chains_hold_each_reply_once(model_of, asked, chat):
    model = model_of("one", "two", "other")
    endpoint = model.endpoint()
    hello = chat()["messages"]
    asked(endpoint, chat())
    for question in ("then?", "or?"):  # the reply is gone on with in two ways
        further = [{"role": "assistant", "content": "one"}, {"role": "user", "content": question}]
        asked(endpoint, chat(messages=[*hello, *further]))

    exchanges = model.extract_experience_from_history(clear_history=False)
    first, second = model.extract_experience_from_history(merge="chains")

    masked = [int(one.action_mask.sum()) for one in (first, second)]
    num_said = [len("one") + 1, len("two") + 1, len("other") + 1]
    assert masked == [num_said[0] + num_said[1], num_said[2]]
    assert first.tokens.tolist() == exchanges[1].tokens.tolist()


def test_an_answer_that_nobody_heard_is_counted_and_not_trained(model_of, asked, chat, monkeypatch):
    model = model_of("lost", "heard")
    endpoint = model.endpoint()
    monkeypatch.setattr(Session, "deliver", lambda *args, **kwargs: None)
    asked(endpoint, chat("a"))  # as if its client had gone away meanwhile
    monkeypatch.undo()
    asked(endpoint, chat("b"))

    [experience] = model.extract_experience_from_history()

    assert experience.response_text == "heard"
    assert experience.metrics["api/undelivered:sum"] == 1.0


def test_a_chain_trains_a_reply_that_was_extracted_before_no_second_time(model_of, asked, chat):
    model = model_of("one", "two")
    endpoint = model.endpoint()
    hello = chat()["messages"]
    asked(endpoint, chat())
    [first] = model.extract_experience_from_history(merge="chains")
    further = [{"role": "assistant", "content": "one"}, {"role": "user", "content": "then?"}]
    asked(endpoint, chat(messages=[*hello, *further]))

    [second] = model.extract_experience_from_history(merge="chains")

    assert int(first.action_mask.sum()) == len("one") + 1
    assert int(second.action_mask.sum()) == len("two") + 1


def test_a_chain_leaves_out_what_was_asked_without_recording(model_of, asked, chat):
    model = model_of("one", "two")
    hello = chat()["messages"]
    asked(model.endpoint(record=False), chat())
    further = [{"role": "assistant", "content": "one"}, {"role": "user", "content": "then?"}]
    asked(model.endpoint(), chat(messages=[*hello, *further]))

    [chain] = model.extract_experience_from_history(merge="chains")

    assert int(chain.action_mask.sum()) == len("two") + 1
