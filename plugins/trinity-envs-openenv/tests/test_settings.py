"""What ``openenv_workflow`` is told, and what it refuses before a run."""

from __future__ import annotations

import pytest
from trinity.errors import ConfigError, PluginError
from trinity_envs_openenv.action import ActionRule, NoActionError
from trinity_envs_openenv.workflow import OpenEnvWorkflow

URL = {"url": "http://127.0.0.1:8000"}
RULE = {"action": {"field": "message"}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs workflow_args.action, such as"),
        ({**RULE, "tools": True}, "needs workflow_args.action, such as"),
        (RULE, "needs workflow_args.url, of a server that runs, or workflow_args.folder"),
        ({**URL, **RULE, "folder": "."}, "one of them"),
        ({"url": "127.0.0.1:8000", **RULE}, "Give one such as http://127.0.0.1:8000"),
        ({"folder": "/no/such/folder", **RULE}, "is no folder. `openenv init NAME` makes one"),
        ({**URL, **RULE, "templat": ""}, "Did you mean 'template'"),
        ({**URL, **RULE, "template": "{{ x"}, "is no Jinja template"),
        ({**URL, **RULE, "reward": "mean"}, "Say sum or last"),
        ({**URL, **RULE, "reset": ["seed"]}, "Give pairs"),
        ({**URL, **RULE, "timeout_s": 0}, "workflow_args.timeout_s is 0. Give seconds"),
        ({**URL, **RULE, "max_env_steps": 0}, "workflow_args.max_env_steps is 0"),
        ({**URL, "tools": "yes"}, "workflow_args.tools is 'yes'. Say true or false"),
        ({**URL, "action": "message"}, "Give pairs, such as {field: message}"),
        ({**URL, "action": {"feld": "x"}}, "Did you mean 'field'"),
        ({**URL, "action": {"type": "text"}}, "lacks field"),
        ({**URL, "action": {"field": "x", "type": "int"}}, "Say one of text, integer, number"),
        ({**URL, "action": {"field": "x", "pattern": "("}}, "is no regular expression"),
        ({**URL, "action": {"field": "x", "values": 3}}, "action.values is 3"),
    ],
)
def test_what_no_run_could_use_is_refused(arguments, said):
    with pytest.raises(ConfigError) as raised:
        OpenEnvWorkflow.check_arguments(arguments)
    assert said in str(raised.value)


def test_a_folder_needs_its_own_or_the_plugins_environment(tmp_path, monkeypatch, golden):
    monkeypatch.setenv("TRINITY_ENVIRONMENTS", str(tmp_path / "environments"))
    folder = tmp_path / "my_env"
    folder.mkdir()
    (folder / "openenv.yaml").write_text("app: server.app:app\n")
    arguments = {"folder": str(folder), **RULE}

    with pytest.raises(PluginError) as raised:
        OpenEnvWorkflow.check_arguments(arguments)
    golden(str(raised.value), "env_openenv_environment_missing", TMP=tmp_path)

    python = folder / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    OpenEnvWorkflow.check_arguments(arguments)


@pytest.mark.parametrize(
    ("text", "said"), [(None, "cannot be read"), ("name: x\n", "names no app"), ("[", "cannot")]
)
def test_a_folder_without_an_app_says_how_to_name_one(tmp_path, text, said):
    if text is not None:
        (tmp_path / "openenv.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        OpenEnvWorkflow.check_arguments({"folder": str(tmp_path), **RULE})
    assert "such as server.app:app" in str(raised.value)


@pytest.mark.parametrize(
    ("rule", "reply", "action"),
    [
        ({"field": "message"}, " hello \n", {"message": "hello"}),
        ({"field": "move", "type": "integer"}, "3", {"move": 3}),
        ({"field": "price", "type": "number"}, "2.5", {"price": 2.5}),
        ({"field": "moves", "type": "json"}, "[1, 2]", {"moves": [1, 2]}),
        ({"type": "json"}, '{"move": 3}', {"move": 3}),
        ({"field": "move", "pattern": r"\d+", "type": "integer"}, "3, no: 4", {"move": 4}),
        ({"field": "move", "values": {"game": "go"}}, "a1", {"game": "go", "move": "a1"}),
    ],
)
def test_a_reply_becomes_an_action(rule, reply, action):
    assert ActionRule.of(rule).action(reply) == action


@pytest.mark.parametrize(
    ("rule", "reply", "said"),
    [
        ({"field": "move", "type": "integer"}, "three", "'three' is no whole number."),
        ({"field": "move", "type": "number"}, "nan", "'nan' is no number."),
        ({"type": "json"}, "{", "Your reply is no JSON."),
        ({"type": "json"}, "[]", "Your reply is no JSON object."),
        ({"field": "move", "pattern": r"\d"}, "x", "holds no action"),
    ],
)
def test_a_reply_that_is_no_action_is_told_why(rule, reply, said):
    with pytest.raises(NoActionError) as raised:
        ActionRule.of(rule).action(reply)
    assert said in str(raised.value)
