"""An episode that was recorded is played again without a server."""

from __future__ import annotations

import pytest
from trinity.common.workflows.recorded_env import Recording
from trinity.errors import EnvError
from trinity_debug.environments import RepeatedEnvironments, answers_of

ECHO = {"action": {"type": "json"}, "template": "{{ observation.echoed_message }}"}
HI, ODD = '{"message": "hi"}', '{"text": "hi"}'
NOWHERE = "http://127.0.0.1:9"


def repeated(recording):
    answers = answers_of(recording.text(), place="run/1/0/0")
    assert answers.problem == ""
    return RepeatedEnvironments(answers, is_over=lambda: False)


def test_an_episode_is_replayed_without_a_server_and_finds_another_action(run_in, echo):
    given = {"max_env_steps": 3, **ECHO}
    recording = Recording()
    first, _ = run_in(HI, ODD, HI, url=echo.url, environments=recording, **given)
    assert first.metrics["env_refused"] == 1.0

    environments = repeated(recording)
    again, _ = run_in(HI, ODD, HI, url=NOWHERE, environments=environments, **given)
    assert again.tokens.tolist() == first.tokens.tolist()
    assert (again.reward, again.metrics) == (first.reward, first.metrics)
    assert (environments.departure, environments.left) == (None, None)

    environments = repeated(recording)
    with pytest.raises(EnvError, match="step 3 of the environment differs"):
        run_in(HI, HI, HI, url=NOWHERE, environments=environments, **given)
    assert environments.departure.was == "step({'text': 'hi'})"
    assert environments.departure.now == "step({'message': 'hi'})"


def test_an_episode_of_tools_is_replayed_without_a_server(run_in, adder):
    call = '<tool_call>\n{{"name": "{}", "arguments": {}}}\n</tool_call>'
    said = (call.format("add", '{"a": 40, "b": 6}'), call.format("hand_in", '{"total": 46}'))
    recording = Recording()
    first, _ = run_in(*said, url=adder.url, tools=True, environments=recording)
    assert first.reward == 1.0

    environments = repeated(recording)
    again, _ = run_in(*said, url=NOWHERE, tools=True, environments=environments)
    assert again.tokens.tolist() == first.tokens.tolist()
    assert again.reward == 1.0
    assert (environments.departure, environments.left) == (None, None)
