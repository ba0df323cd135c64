"""An engine gets what its constructor names; the rest of the settings is listed as not used."""

from __future__ import annotations

import sys

import pytest
from trinity.common.config.config import Config
from trinity.common.config.inference_model import engine_arguments, engine_parameters
from trinity.extend import get_manager
from trinity.extend.kind import parameters_of

SOURCE = """
import no_such_module


class Spread:
    def __init__(self, *, model_path, tensor_parallel_size=1, num_swaps=0):
        pass


class Anything:
    def __init__(self, **options):
        pass
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    (tmp_path / "spread_engines.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    return lambda name: get_manager().find("rollout_engine", f"spread_engines:{name}")


def a_config(**rollout):
    config = Config(model={"model_path": "m", "max_model_len": 64})
    for name, value in rollout.items():
        setattr(config.explorer.rollout_model, name, value)
    return config


def arguments(parameters, config):
    return engine_arguments(parameters, rollout=config.explorer.rollout_model, model=config.model)


def test_the_constructor_gets_the_fields_that_it_names_and_further_arguments(target) -> None:
    config = a_config(
        tensor_parallel_size=2, enforce_eager=True, extra_engine_args={"num_swaps": 3, "other": 4}
    )

    assert arguments(engine_parameters(target("Spread")), config) == {
        "model_path": "m",
        "tensor_parallel_size": 2,
        "num_swaps": 3,
    }


def test_further_arguments_are_nearer_than_the_section_and_that_nearer_than_the_model() -> None:
    names = frozenset({"max_model_len", "enforce_eager", "trust_remote_code"})
    config = a_config(max_model_len=32, extra_engine_args={"enforce_eager": True})
    config.model.trust_remote_code = True

    assert arguments(names, config) == {
        "max_model_len": 32,
        "enforce_eager": True,
        "trust_remote_code": True,
    }


def test_a_constructor_that_takes_anything_gets_what_every_engine_got(target) -> None:
    config = a_config(enforce_eager=True, extra_engine_args={"num_swaps": 3})

    assert engine_parameters(target("Anything")) is None
    assert arguments(None, config) == {
        "model_path": "m",
        "max_model_len": 64,
        "trust_remote_code": False,
        "dtype": None,
        "seed": None,
        "cpu_kernels": True,
        "num_swaps": 3,
    }


def test_reading_the_source_finds_what_the_class_says(target) -> None:
    own = get_manager().find("rollout_engine", "transformers")

    assert engine_parameters(own) == parameters_of(own.load())
    assert "spread_engines" not in sys.modules
