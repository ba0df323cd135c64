"""A service, asked by HTTP: whose call it is, what is stored, how rewards come."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from http.client import HTTPConnection
from urllib.parse import urlsplit

import openai
import pytest
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.errors import DataError
from trinity_serve.endpoint.service_frontend import ServiceFrontend
from trinity_serve.run_store import SqliteRunStore
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

KEY = "a-key-of-the-service"


class Served:
    """A service on scripted engines, and a client of it."""

    def __init__(self, settings, path, *engines) -> None:
        self.store = SqliteRunStore(path)
        self.room = ServiceFrontend(host="127.0.0.1", port=0)
        models = [ModelWrapper(engine, script_chat_format(), settings) for engine in engines]
        self.room.serve(models, store=self.store, keys=[KEY, "another-key"], logs_requests=False)
        self.room.open()

    def ask(self, path, body=None, *, key=KEY, **headers):
        raw = None if body is None else json.dumps(body).encode()
        connection = HTTPConnection(urlsplit(self.room.url).netloc, timeout=20)
        given = {"Authorization": f"Bearer {key}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request("GET" if body is None else "POST", path, raw, given)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers["content-type"].startswith("application/json")
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def say(self, run=None, **fields):
        headers = {"X_Trinity_Run": run} if run else {}
        status, body = self.ask("/v1/chat/completions", a_chat(**fields), **headers)
        return status, body

    def reward(self, run=None, reward=1.0, **fields):
        named = {"run": run} if run else {}
        return self.ask("/feedback", {**named, "reward": reward, **fields})

    def committed(self):
        self.ask("/commit", {})
        return self.store.due()

    def close(self) -> None:
        self.room.close()
        self.store.close()


def a_chat(**fields):
    return {"model": "scripted", "messages": [{"role": "user", "content": "hello"}], **fields}


def message_of(answer) -> str:
    status, body = answer
    return f"{status} {body['error']['code']}: {body['error']['message']}"


@pytest.fixture
def settings():
    return ModelSettings(model_path="scripted", max_model_len=4096, max_response_tokens=512)


@pytest.fixture
def served(settings, tmp_path):
    engine = ScriptedEngine("one", "two", "three", *["more"] * 9)
    service = Served(settings, tmp_path / "serve.db", engine)
    yield service
    service.close()


def test_a_commit_of_a_damaged_reply_is_refused_and_names_it(served) -> None:
    for name in "ab":
        served.say(name)
        served.reward(name, 0.5)
    served.store._db.execute(
        "UPDATE exchanges SET experiences = CAST(zeroblob(99) AS BLOB) WHERE run = 2"
    )

    said = message_of(served.ask("/commit", {}))

    assert said.startswith("409 damaged_reply: ")
    assert "reply 0 of run 'b' (table exchanges, run 2, request 0)" in said
    assert served.ask("/commit", {}) == (200, {"runs": 1, "experiences": 1})


def test_calls_of_a_run_are_its_experiences_with_its_reward(served) -> None:
    served.say("a")
    served.say("b")
    served.say("a")

    assert served.reward("a", 0.5, metrics={"turns": 2}) == (200, {"run": "a", "experiences": 2})
    assert served.ask("/commit", {}) == (200, {"runs": 1, "experiences": 2})

    (run,) = served.store.due()
    assert (run.name, run.reward, run.metrics) == ("a", 0.5, {"turns": 2.0})
    assert [e.response_text for e in run.experiences] == ["one", "three"]
    assert [e.eid.step for e in run.experiences] == [0, 1]


def test_a_reply_is_stored_before_its_client_hears_it(served) -> None:
    stored_then: list[int] = []
    keep = served.store.keep
    served.store.keep = lambda *a, **k: (keep(*a, **k), stored_then.append(k["request"]))[0]
    client = openai.OpenAI(
        base_url=f"{served.room.url}/v1", api_key=KEY, default_headers={"X-Trinity-Run": "a"}
    )

    for chunk in client.chat.completions.create(**a_chat(stream=True)):
        assert stored_then == [0], chunk
    client.close()

    assert served.reward("a")[0] == 200


def test_what_cannot_be_stored_is_not_said(served, monkeypatch) -> None:
    def full(*args, **kwargs):
        raise DataError("serve.db cannot be used: database or disk is full.")

    monkeypatch.setattr(served.store, "keep", full)

    assert message_of(served.say("a")) == (
        "503 not_stored: the service cannot store its replies: serve.db cannot be used: "
        "database or disk is full."
    )


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda s: s.ask("/v1/chat/completions", a_chat(), key="guessed"),
            "401 invalid_api_key: the key is missing or unknown; send one of TRINITY_SERVE_KEYS, or"
            " the one that the service printed when it started, as 'Authorization: Bearer KEY'.",
        ),
        (
            lambda s: s.ask("/commit", {}, key=""),
            "401 invalid_api_key: the key is missing or unknown; send one of TRINITY_SERVE_KEYS, or"
            " the one that the service printed when it started, as 'Authorization: Bearer KEY'.",
        ),
        (
            lambda s: s.say("two words"),
            "400 invalid_request_error: the header x-trinity-run is 'two words'; use up to 128 of "
            "A-Z a-z 0-9 _ . and -.",
        ),
        (
            lambda s: s.say("auto-0"),
            "400 invalid_request_error: the header x-trinity-run is 'auto-0'; names that begin "
            "with auto- are the service's own.",
        ),
        (
            lambda s: s.say("a", model="gpt"),
            "404 model_not_found: there is no model 'gpt'; known: scripted.",
        ),
        (
            lambda s: s.reward("nobody"),
            "404 run_not_found: the run 'nobody' is unknown, or was deleted after "
            "explorer.keep_runs_s; name the run as its calls did in the header X-Trinity-Run.",
        ),
        (
            lambda s: s.reward(),
            "404 run_not_found: a run of this key and user is unknown, or was deleted after "
            "explorer.keep_runs_s; name the run as its calls did in the header X-Trinity-Run.",
        ),
        (
            lambda s: (s.say("a"), s.reward("a"), s.reward("a"))[-1],
            "409 feedback_given: the run 'a' already has its reward.",
        ),
        (
            lambda s: (s.say("a"), s.reward("a"), s.say("a"))[-1],
            "409 run_over: the run 'a' already has its reward, so it accepts no further calls; use "
            "another name in the header X-Trinity-Run for the next rollout.",
        ),
        (
            lambda s: (s.say("a"), s.store.drop(before=1e12), s.reward("a"))[-1],
            "404 run_dropped: the run 'a' was dropped, because it got no reward in "
            "time. Raise explorer.max_timeout if that is too short.",
        ),
        (
            lambda s: (s.say("a"), s.store.drop(before=1e12), s.say("a"))[-1],
            "409 run_over: the run 'a' got no reward in time (explorer.max_timeout) and was "
            "dropped, so it accepts no further calls; use another name in the header "
            "X-Trinity-Run for the next rollout.",
        ),
        (
            lambda s: (s.say("a", model="scripted:solver"), s.reward("a", agent="cook"))[-1],
            "404 agent_not_found: the run 'a' has no call of the agent 'cook' that waits for a "
            "reward; its agents: 'solver'.",
        ),
        (
            lambda s: s.ask("/feedback", {"run": "a"}),
            "400 invalid_request_error: reward is missing; give a number.",
        ),
        (
            lambda s: s.reward("a", "good"),
            "400 invalid_request_error: reward is 'good'; give a finite number.",
        ),
        (
            lambda s: s.reward("a", 10**400),
            "400 invalid_request_error: reward is 1000000000000000000000000000000000000000; give "
            "a finite number.",
        ),
        (
            lambda s: s.reward("a", -1e39),
            "400 invalid_request_error: reward is -1e+39; give a number between -3.4e38 and "
            "3.4e38.",
        ),
        (
            lambda s: s.reward("a", metrics={"t": 1e39}),
            "400 invalid_request_error: metrics.t is 1e+39; give a number between -3.4e38 and "
            "3.4e38.",
        ),
        (
            lambda s: s.reward("a", metrics={"turns": "two"}),
            "400 invalid_request_error: metrics.turns is 'two'; give a finite number.",
        ),
        (
            lambda s: s.reward("a", rewards=[1]),
            "400 invalid_request_error: rewards is no field of feedback; it has run, reward, "
            "metrics, agent, user.",
        ),
        (lambda s: s.ask("/feedback"), "405 method_not_allowed: /feedback takes POST, not GET."),
    ],
)
def test_every_refusal_is_a_sentence_that_says_what_to_do(served, ask, message) -> None:
    assert message_of(ask(served)) == message


def test_without_a_name_a_run_is_of_the_key_and_the_user(served) -> None:
    served.say(user="ann")
    served.say(user="bob")
    served.say(user="ann")
    served.say()
    served.ask("/v1/chat/completions", a_chat(), key="another-key")

    status, body = served.reward(user="ann")
    assert (status, body["experiences"]) == (200, 2)
    assert served.reward()[1]["experiences"] == 1
    served.say(user="ann")
    assert served.reward(user="ann")[1]["experiences"] == 1
    assert served.store.counts()["open"] == 2


def test_feedback_without_a_name_is_for_the_run_that_was_called_last(served) -> None:
    served.say(user="ann")
    served.say("ticket-17", user="ann")
    served.say("ticket-18", user="bob")

    assert served.reward(user="ann") == (200, {"run": "ticket-17", "experiences": 1})


def test_an_agents_reply_under_way_is_not_given_once_it_has_its_reward(
    settings, tmp_path, held_engine
) -> None:
    engine = held_engine("one", "two")
    service = Served(settings, tmp_path / "serve.db", engine)
    answers: list[tuple[int, object]] = []
    planner = {"model": "scripted:planner"}

    def asked() -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.append(service.say("a", **planner)))
        thread.start()
        assert engine.has_request.wait(10)
        return thread

    first = asked()
    assert service.room.busy() == [1]
    engine.let_go()
    first.join(10)
    assert service.room.busy() == []
    second = asked()
    assert service.reward("a", agent="planner")[1]["experiences"] == 1
    engine.let_go()
    second.join(10)

    assert [status for status, _ in answers] == [200, 409]
    assert "already has a reward for its agent 'planner'" in message_of(answers[1])
    assert service.ask("/commit", {}) == (200, {"runs": 1, "experiences": 1})
    service.close()


def test_a_run_goes_on_after_a_restart_and_no_number_is_given_twice(
    served, settings, tmp_path
) -> None:
    served.say("a")
    served.close()

    again = Served(settings, tmp_path / "serve.db", ScriptedEngine("five", "six"))
    again.say("a")
    again.reward("a")
    (run,) = again.committed()
    again.close()

    assert [(e.eid.step, e.response_text) for e in run.experiences] == [(0, "one"), (1, "five")]


def test_a_chat_that_goes_on_is_prompted_with_the_recorded_ids(served) -> None:
    _, first = served.say("a", return_token_ids=True)
    messages = [
        *a_chat()["messages"],
        first["choices"][0]["message"],
        {"role": "user", "content": "more"},
    ]
    served.ask("/v1/chat/completions", a_chat(messages=messages), X_Trinity_Run="a")
    served.reward("a")

    (run,) = served.committed()
    assert [e.info.get("continues") for e in run.experiences] == [None, "0-0"]


def test_a_retry_is_stored_once(served) -> None:
    served.ask("/v1/chat/completions", a_chat(), X_Trinity_Run="a", Idempotency_Key="k")
    served.ask("/v1/chat/completions", a_chat(), X_Trinity_Run="a", Idempotency_Key="k")

    assert served.reward("a")[1]["experiences"] == 1


def test_choices_of_a_call_are_experiences_of_the_run(served) -> None:
    served.say("a", n=2)
    served.reward("a")

    (run,) = served.committed()
    assert [e.eid.suffix for e in run.experiences] == ["", "choice-1"]


def test_the_sampling_of_the_configuration_holds(settings, tmp_path) -> None:
    engine = ScriptedEngine("one")
    service = Served(replace(settings, temperature=0.7), tmp_path / "serve.db", engine)

    service.say("a", temperature=0.1, top_p=0.5)
    service.reward("a")
    (run,) = service.committed()
    service.close()

    assert run.experiences[0].temperature == pytest.approx(0.7)


def test_a_run_stays_with_one_engine_and_runs_spread(settings, tmp_path) -> None:
    engines = [ScriptedEngine(*["left"] * 20), ScriptedEngine(*["right"] * 20)]
    service = Served(settings, tmp_path / "serve.db", *engines)

    said = {
        run: {service.say(run)[1]["choices"][0]["message"]["content"] for _ in range(2)}
        for run in ("a", "b", "c", "d", "e", "f")
    }
    service.close()

    assert all(len(words) == 1 for words in said.values())
    assert set().union(*said.values()) == {"left", "right"}


def test_feedback_cancels_what_its_run_still_asks(settings, tmp_path, held_engine) -> None:
    engine = held_engine("one", "two")
    service = Served(settings, tmp_path / "serve.db", engine)
    answers: list[tuple[int, object]] = []
    first = threading.Thread(target=lambda: answers.append(service.say("a")))
    first.start()
    assert engine.has_request.wait(10)
    engine.let_go()
    first.join(10)
    second = threading.Thread(target=lambda: answers.append(service.say("a")))
    second.start()
    assert engine.has_request.wait(10)

    assert service.reward("a")[1]["experiences"] == 1

    second.join(10)
    assert [status for status, _ in answers] == [200, 409]
    assert engine.held[0][1].cancelled()
    service.close()


def test_the_metrics_say_what_there_is(served) -> None:
    served.say("a")
    served.say("b")
    served.reward("a")
    served.reward("a")

    _, text = served.ask("/metrics")

    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert 'trinity_serve_answers_total{status="200"} 3' in lines
    assert 'trinity_serve_answers_total{status="409"} 1' in lines
    assert 'trinity_serve_runs{state="open"} 1' in lines
    assert 'trinity_serve_runs{state="rewarded"} 1' in lines
    assert 'trinity_serve_tokens_total{kind="completion"} 8' in lines
    assert 'trinity_serve_model_version{engine="0"} 0' in lines
    assert "# TYPE trinity_serve_runs gauge" in text


def test_a_commit_wakes_who_waits(served) -> None:
    woken = threading.Event()
    waiting = threading.Thread(target=lambda: (served.room.wait(30), woken.set()))
    waiting.start()

    served.ask("/commit", {})

    assert woken.wait(5)
    waiting.join()
