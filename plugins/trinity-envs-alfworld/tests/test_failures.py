"""What goes wrong in the engine's process, and what is too long for the model."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import trinity_envs_alfworld.env as env_module
from alfworld_runs import BOTH, GAME, a_workflow, saying, the_run
from trinity.common.models.model import ModelWrapper
from trinity.common.models.settings import ModelSettings
from trinity.common.workflows.env_pool import shared_pool
from trinity.errors import ConfigError, DataError, EnvError, PluginError
from trinity_envs_alfworld import data_check
from trinity_envs_alfworld.env import TIMEOUTS, create_environment
from trinity_testing.engines import ScriptedEngine
from trinity_testing.scripted_model import script_chat_format

ENGINES = Path(__file__).with_name("broken_engines.py")


def replaced(monkeypatch, name):
    monkeypatch.setattr(env_module, "ENGINE", f"{ENGINES}:{name}")


@pytest.mark.parametrize("method", ["Reset", "Step"])
def test_what_the_engine_raises_becomes_an_error_of_that_run(method, monkeypatch, data, golden):
    replaced(monkeypatch, f"RaisesIn{method}")
    for cls in BOTH:
        with pytest.raises(EnvError) as caught:
            the_run(cls, *saying("look"), data=data)
        text = re.sub(r"py:\d+", "py:<LINE>", str(caught.value))
        golden(text, f"alfworld_raises_in_{method.lower()}", DATA=data, TESTS=ENGINES.parent)


def test_a_message_shows_the_beginning_of_a_long_action(monkeypatch, data):
    replaced(monkeypatch, "RaisesInStep")
    with pytest.raises(EnvError, match=r"in the step 'sing [sing ]{60,99}\.{3}' of ") as caught:
        create_environment(GAME, data=data).step("sing " * 50_000)
    assert len(str(caught.value)) < 1000


def test_an_engine_that_cannot_close_hurts_nobody(monkeypatch, data, caplog):
    replaced(monkeypatch, "RaisesInClose")
    experiences, _ = the_run(BOTH[0], *saying("look"), data=data, max_env_steps=2)
    assert experiences[0].reward == -0.1
    shared_pool(env_module.ENGINE, arguments={"fast": True}, timeouts=TIMEOUTS).close()
    assert "the planner gave up in close" in caplog.text


def test_an_engine_that_cannot_be_made_faster_plays_and_says_so_once(monkeypatch, data, caplog):
    replaced(monkeypatch, "CannotBeHastened")
    for _ in range(2):
        the_run(BOTH[0], *saying("look"), data=data, max_env_steps=2)
    assert caplog.text.count("(pddl2sas takes ['problem']): it plays the same, ten times") == 1


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch, data, golden):
    replaced(monkeypatch, "LacksAPackage")
    with pytest.raises(PluginError) as caught:
        the_run(BOTH[0], *saying("look"), data=data)
    golden(str(caught.value), "alfworld_not_installed", PYTHON=sys.executable, TESTS=ENGINES.parent)


@pytest.mark.parametrize("cls", BOTH)
def test_an_observation_that_the_context_has_no_room_for_ends_in_a_shorter_lesson(cls, data):
    workflow = a_workflow(cls, ScriptedEngine("x", repeat=True), data=data, max_env_steps=6)
    settings = ModelSettings(
        model_path="scripted", max_model_len=1000, max_response_tokens=60, enable_history=True
    )
    engine = ScriptedEngine(*saying("look"), repeat=True)
    workflow.model = ModelWrapper(engine, script_chat_format(), settings)
    experiences = workflow.run()
    fills_the_context = cls is BOTH[0]  # which is one conversation; the other forgets
    assert {one.reward for one in experiences} == {0.0 if fills_the_context else -0.1}
    assert any(one.truncate_status for one in experiences)
    assert experiences[0].truncate_status is None or len(experiences) == 1
    assert max(len(one.request.prompt_token_ids) for one in engine.exchanges) <= 1000


@pytest.mark.parametrize("cls", BOTH)
def test_wrong_arguments_and_a_folder_that_is_none_are_found_before_a_run(
    cls, data, monkeypatch, tmp_path
):
    monkeypatch.setenv("ALFWORLD_DATA", str(data))
    cls.check_arguments({"max_env_steps": 3})
    with pytest.raises(ConfigError, match=r"no 'max_step'\. Did you mean 'max_env_steps'\?"):
        cls.check_arguments({"max_step": 3})
    with pytest.raises(DataError, match="is no folder with ALFWorld's games"):
        cls.check_arguments({"data": str(tmp_path / "gone")})
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match="trinity plugins setup alfworld"):
        cls.check_arguments({})
    monkeypatch.delenv("ALFWORLD_DATA")
    cls.check_arguments({})  # the rows may hold absolute paths


def test_an_engine_that_is_not_installed_is_found_before_a_run(monkeypatch):
    monkeypatch.setattr(data_check, "_PACKAGES", ("alfworld", "a_package_that_nobody_has"))
    with pytest.raises(PluginError, match="lacks the package a_package_that_nobody_has; run: "):
        BOTH[0].check_arguments({})
