"""What a configuration hears whose workflows ask by HTTP."""

import pytest
from trinity.common.config import Config, check_support
from trinity.common.config.inference_model import InferenceModelConfig


@pytest.fixture
def config():
    config = Config()
    config.explorer.rollout_model.enable_openai_api = True
    return config


def told(config):
    return [str(problem) for problem in check_support.support_problems(config)]


def test_a_missing_package_is_named_with_the_line_that_installs_it(config, monkeypatch):
    monkeypatch.setattr(check_support, "find_spec", lambda name: None if name == "uvicorn" else 1)

    [line] = told(config)

    assert "explorer.rollout_model.enable_openai_api" in line
    assert "needs uvicorn, which is not installed." in line
    assert "pip install 'trinity-core[api]'" in line


def test_with_the_packages_there_is_nothing_to_say(config):
    assert told(config) == []


def test_two_auxiliary_models_of_one_name_are_both_named():
    config = Config()
    config.explorer.auxiliary_models = [
        InferenceModelConfig(name="judge"),
        InferenceModelConfig(name="judge"),
    ]

    [line] = told(config)

    assert "auxiliary_models.1.name" in line
    assert "'judge' is also the name of entry 0." in line
