"""What a configuration hears whose workflows or mode need a distribution beside the core."""

from __future__ import annotations

import pytest
from trinity.common.config import Config, check, check_support, load_config, resolve
from trinity.common.config.inference_model import InferenceModelConfig
from trinity.common.config.problem import listed
from trinity.common.config.resolve import resolve_stages
from trinity.extend import PluginManager, set_manager

OWN_MODE = """
    from trinity.extend import hookimpl

    @hookimpl
    def trinity_run_modes():
        return {"drive": "drive_parts:Drive"}
"""


@pytest.fixture
def told(cpu, a_run):
    """Return a function that gives what is wrong with a run of these settings."""

    def run(*settings: str) -> list[str]:
        config = resolve(load_config(a_run(), overrides=settings), cpu)
        return listed(check(config, cpu))

    return run


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("mode=serve", "mode"),
        ("explorer.rollout_model.enable_openai_api=true", "rollout_model.enable_openai_api"),
        ("explorer.auxiliary_models=[{name: judge}]", "explorer.auxiliary_models"),
    ],
)
def test_a_bare_core_names_the_line_that_installs_what_is_missing(
    setting, path, told, builtin_only
) -> None:
    [line] = told(setting, "buffer.trainer_input.experience_buffer={storage_type: file, path: a}")

    assert f"{path}: no " in line
    assert "It is part of trinity-serve. Run: python -m pip install trinity-serve" in line


def test_without_workflows_no_endpoint_is_missing(told, builtin_only) -> None:
    found = told("mode=train", "explorer.rollout_model.enable_openai_api=true")

    assert "endpoint" not in "".join(found)


def test_without_a_mode_nobody_says_what_the_mode_would_need(told) -> None:
    [line] = told("mode=boht", "trainer={save_interval: 4}", "model.model_path=./no/such")

    assert "mode: no run_mode named 'boht'. Did you mean 'both'?" in line


def test_a_misspelt_mode_of_a_stage_is_named_with_its_place(a_run, cpu) -> None:
    config = load_config(a_run("stages: [{stage_name: a, mode: trian}]"))
    [stage] = resolve_stages(config, cpu)

    [line] = listed(check(stage, cpu))

    assert "run.yaml:11: stages.0.mode: no run_mode named 'trian'. Did you mean 'train'?" in line


def test_a_mode_of_a_plugin_is_one_like_those_of_the_core(told, site, cpu) -> None:
    site.plugin("drive", OWN_MODE)
    site.module("drive_parts", "class Drive:\n    def add_workers(self, chat_format): ...\n")
    set_manager(PluginManager.discover(env={}))

    assert told("mode=drive", "trainer={save_interval: 4}") == []


def test_two_auxiliary_models_of_one_name_are_both_named() -> None:
    config = Config()
    config.explorer.auxiliary_models = [
        InferenceModelConfig(name="judge"),
        InferenceModelConfig(name="judge"),
    ]

    [line] = [str(problem) for problem in check_support.support_problems(config)]

    assert "auxiliary_models.1.name" in line
    assert "'judge' is also the name of entry 0." in line
