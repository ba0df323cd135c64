"""Episodes with a scripted model, in what servers of OpenEnv were recorded to say."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from trinity.errors import ConfigError, EnvError
from trinity_envs_openenv import acting
from trinity_envs_openenv.session import Session
from trinity_testing.checks.sampled_tokens import trained_spans, unsampled

ECHO = {"action": {"field": "message"}, "template": "{{ observation.echoed_message }}"}


def prompts(engine):
    return [engine.tokenizer.decode(e.request.prompt_token_ids) for e in engine.exchanges]


def test_an_episode_is_one_experience_with_the_sum_of_its_rewards(run_in, echo):
    experience, engine = run_in("hello", "hello world", url=echo.url, max_env_steps=2, **ECHO)

    assert [message["data"] for message in echo.received] == [
        {},
        {"message": "hello"},
        {"message": "hello world"},
    ]
    echo.close()  # which waits for its sessions
    assert echo.num_closed == 1
    assert experience.reward == 0.5 + 1.0
    assert experience.metrics["env_rounds"] == 2.0
    assert experience.metrics["env_done"] == experience.metrics["env_refused"] == 0.0
    assert "user\nMy Env environment ready!" in prompts(engine)[0]
    assert prompts(engine)[1].endswith("user\nhello<|im_end|>\n<|im_start|>assistant\n")
    for span in trained_spans(experience):
        assert not unsampled(experience, span, engine.exchanges)


def test_an_episode_that_fills_the_context_keeps_the_rewards_of_its_steps(run_in, echo):
    rule = {**ECHO, "template": "{% if step %}{{ 'ab ' * 16384 }}{% endif %}."}
    experience, _ = run_in("hello", "hello world", url=echo.url, max_env_steps=2, **rule)

    assert experience.truncate_status == "prompt_truncated"
    assert experience.reward == 0.5 + 1.0


def test_the_last_reward_counts_where_it_is_asked_for(run_in, echo):
    given = {"url": echo.url, "max_env_steps": 2, "reward": "last", **ECHO}
    experience, _ = run_in("hello", "hello world", **given)

    assert experience.reward == 1.0


def test_without_a_template_the_model_sees_the_fields_without_the_metadata(run_in, echo):
    rule = {"action": {"field": "message"}}
    _, engine = run_in("hello", "hello world", url=echo.url, max_env_steps=2, **rule)

    assert '{"echoed_message": "hello", "message_length": 5}' in prompts(engine)[1]


def test_a_template_sees_the_row_and_the_step_and_a_system_prompt_comes_first(run_in, echo):
    template = "{{ task.question }} {{ step }} {{ reward }} {{ observation.message_length }}"
    given = {**ECHO, "template": template, "url": echo.url, "max_env_steps": 2}
    _, engine = run_in("hello", "hello world", system="Echo.", **given)

    assert prompts(engine)[0].startswith("<|im_start|>system\nEcho.")
    assert "user\nadd 0 0.0 0<" in prompts(engine)[0]
    assert "user\nadd 1 0.5 5<" in prompts(engine)[1]


def test_the_row_gives_what_the_environment_is_reset_with(run_in, echo):
    given = {"url": echo.url, "max_env_steps": 1, "reset": {"seed": "number"}, **ECHO}
    run_in("hello", row={"number": 7}, **given)

    assert echo.received[0] == {"type": "reset", "data": {"seed": 7}}
    with pytest.raises(ConfigError, match=r"names 'number', which the row lacks. It has: question"):
        run_in("hello", **given)


def test_an_action_that_the_environment_refuses_is_answered_with_why(run_in, echo):
    replies = ('{"message": "hi"}', '{"text": "hi"}', '{"message": "hi"}')
    rule = {"action": {"type": "json"}, "template": ECHO["template"]}
    experience, engine = run_in(*replies, url=echo.url, max_env_steps=3, **rule)

    said = "The environment refused that: message: Field required; text: Extra inputs are not"
    assert said in prompts(engine)[2]
    assert experience.reward == pytest.approx(0.4)
    assert experience.metrics["env_refused"] == 1.0


def test_a_reply_without_an_action_reaches_no_environment(run_in, echo):
    rule = {"field": "message", "pattern": r"<say>(.*?)</say>"}
    given = {**ECHO, "action": rule, "url": echo.url, "max_env_steps": 2}
    experience, engine = run_in("well...", "<say>no</say> <say>hello</say>", **given)

    assert [m["data"] for m in echo.received] == [{}, {"message": "hello"}]
    assert "Your reply holds no action" in prompts(engine)[1]
    assert (experience.reward, experience.metrics["env_refused"]) == (0.5, 1.0)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            {"field": "mesage"},
            r"no field of actions at http://.* named 'mesage'. Did you mean 'message'",
        ),
        ({"field": "metadata"}, r"actions at http://.* need message too. Give it in action.values"),
    ],
)
def test_a_rule_that_no_action_could_follow_ends_the_run_before_its_first_step(
    run_in, echo, rule, said
):
    with pytest.raises(ConfigError, match=said):
        run_in("hello", url=echo.url, action=rule)
    assert echo.received == []


def test_the_schema_is_asked_for_once(echo):
    from trinity_envs_openenv.action import ActionRule
    from trinity_envs_openenv.schema import check_actions

    for _ in range(3):
        check_actions(ActionRule(field="message"), url=echo.url)
    assert echo.pages["/schema"] == 1


def test_a_server_of_this_machine_is_asked_without_a_proxy(run_in, echo, monkeypatch):
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nobody listens there

    with pytest.raises(ConfigError, match="no field of actions"):
        run_in("hello", url=echo.url, action={"field": "mesage"})


def test_a_full_server_is_waited_for(run_in, echo):
    echo.num_most = 0
    timer = threading.Timer(0.3, lambda: setattr(echo, "num_most", 1))
    timer.start()
    began = time.monotonic()
    experience, _ = run_in("hello", url=echo.url, max_env_steps=1, **ECHO)

    assert time.monotonic() - began >= 0.25
    assert experience.reward == 0.5


def test_a_server_that_stays_full_says_what_to_change(run_in, echo):
    echo.num_most = 0
    with pytest.raises(EnvError) as raised:
        run_in("hello", url=echo.url, session_wait_s=0.1, **ECHO)
    assert "had no room in 0.1 s: Server at capacity: 1/1 sessions active" in str(raised.value)
    assert "max_concurrent_envs" in str(raised.value)


def test_a_server_that_is_lost_is_an_environments_error(run_in, echo):
    echo.loses_after = 2
    with pytest.raises(EnvError, match=r"the server at http://\S+ was lost during step"):
        run_in("hello", url=echo.url, **ECHO)


def test_where_no_server_is_the_url_is_named(run_in):
    with pytest.raises(EnvError, match=r"no OpenEnv server answers at http://127.0.0.1:9: "):
        run_in("hello", url="http://127.0.0.1:9", **ECHO)


def test_a_step_that_hangs_is_ended_by_its_limit(echo):
    session = Session(echo.url, timeout_s=0.2)
    session.reset({}, wait_s=1)
    echo.may_answer.clear()
    with pytest.raises(EnvError, match=r"step at http://\S+ did not end in 0.2 s"):
        session.step({"message": "hello"})
    echo.may_answer.set()
    session.close()
    with pytest.raises(EnvError, match="was given back before its step"):
        session.step({"message": "hello"})


def test_a_step_that_hangs_is_ended_by_close(echo):
    session = Session(echo.url, timeout_s=30)
    session.reset({}, wait_s=1)
    echo.may_answer.clear()
    threading.Timer(0.1, session.close).start()
    began = time.monotonic()
    with pytest.raises(EnvError, match=r"was lost during step"):
        session.step({"message": "hello"})
    assert time.monotonic() - began < 10
    echo.may_answer.set()


def test_tools_are_listed_once_and_called_by_name(run_in, adder):
    calls = ({"name": "add", "arguments": {"a": 40, "b": 6}},)
    calls += ({"name": "hand_in", "arguments": {"total": 46}},)
    replies = [f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls]
    template = "{{ observation.metadata.question }}"
    experience, engine = run_in(*replies, url=adder.url, tools=True, template=template)

    sent = [message["data"] for message in adder.received]
    assert sent[1] == {"type": "list_tools"}
    assert [one["tool_name"] for one in sent[2:]] == ["add", "hand_in"]
    assert experience.reward == 1.0
    assert experience.metrics["env_done"] == 1.0
    assert [tool["function"]["name"] for tool in experience.tools] == ["add", "hand_in"]
    assert "user\n40 + 6<" in prompts(engine)[0]
    assert "tool\n46<" in prompts(engine)[1]
    for span in trained_spans(experience):
        assert not unsampled(experience, span, engine.exchanges)
    assert len(trained_spans(experience)) == 2


def test_a_tool_that_is_not_there_is_said_to_the_model(run_in, adder):
    replies = [
        '<tool_call>\n{"name": "subtract", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "hand_in", "arguments": {"total": 45}}\n</tool_call>',
    ]
    experience, engine = run_in(*replies, url=adder.url, tools=True, template="40 + 6")

    assert "error: no tool is named 'subtract'" in prompts(engine)[1]
    assert experience.reward == 0.0
    assert experience.metrics["env_refused"] == 1.0


def test_a_reply_without_a_call_ends_an_episode_of_tools(run_in, adder):
    experience, _ = run_in("it is 46", url=adder.url, tools=True, template="40 + 6")

    assert experience.reward == 0.0
    assert experience.metrics["env_done"] == 0.0
    assert experience.metrics["env_rounds"] == 1.0


def test_what_a_call_was_refused_for_is_shown_to_the_model():
    from trinity_envs_openenv.observation import Observation
    from trinity_envs_openenv.tools import answer_of

    error = {"error_type": "invalid_args", "message": "a: Input should be a valid integer"}
    refused = Observation(fields={"error": error, "result": None}, reward=None, is_done=False)
    assert answer_of(refused) == "error: a: Input should be a valid integer"
    numbers = Observation(fields={"result": [1, 2]}, reward=None, is_done=False)
    assert answer_of(numbers) == "[1, 2]"


@pytest.fixture
def dying():
    """The URL of a server that takes connections and is gone before it answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def die() -> None:
            while True:
                try:
                    listening.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=die, daemon=True).start()
        yield "http://127.0.0.1:{}".format(*listening.getsockname()[1:2])
        listening.shutdown(socket.SHUT_RDWR)


def test_who_came_to_a_dying_server_begins_in_the_one_that_follows_it(
    run_in, echo, dying, monkeypatch, tmp_path
):
    urls = [dying, echo.url]
    monkeypatch.setattr(acting, "served", lambda folder, *, app: urls.pop(0))

    experience, _ = run_in("hello", folder=str(tmp_path), max_env_steps=1, **ECHO)

    assert experience.reward == 0.5
    assert urls == []


@pytest.mark.parametrize("given", [{"folder": "."}, {"url": "http://127.0.0.1:9"}])
def test_a_server_that_nothing_follows_is_told_once(run_in, dying, monkeypatch, given):
    asked = []
    monkeypatch.setattr(acting, "served", lambda folder, *, app: asked.append(folder) or dying)

    with pytest.raises(EnvError, match="no OpenEnv server answers at "):
        run_in("hello", max_env_steps=1, **given, **ECHO)
    assert len(asked) == (2 if "folder" in given else 0)


def test_a_run_whose_time_is_up_begins_nowhere_else(run_in, dying, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(acting, "served", lambda folder, *, app: asked.append(folder) or dying)
    reset = Session.reset

    def late(session, arguments, *, wait_s):
        session.close()
        return reset(session, arguments, wait_s=wait_s)

    monkeypatch.setattr(Session, "reset", late)
    with pytest.raises(EnvError, match="its time was up"):
        run_in("hello", folder=str(tmp_path), max_env_steps=1, **ECHO)
    assert len(asked) == 1
