from __future__ import annotations

import subprocess
import sys

import pytest
from trinity.algorithm import (
    ADVANTAGE_FN,
    ALGORITHM_TYPE,
    AdvantageFn,
    AlgorithmType,
    SampleStrategy,
)
from trinity.algorithm.algorithms import GRPOAlgorithm, SFTAlgorithm
from trinity.algorithm.sample_strategy.strategies import DefaultSampleStrategy
from trinity.common.experience import Experience
from trinity.errors import ConfigError


def test_importing_the_contracts_imports_nothing_heavy():
    code = (
        "import sys, trinity.algorithm, trinity.algorithm.algorithms;"
        "print([m for m in ('torch', 'ray', 'transformers', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout.strip() == "[]"


def test_the_registry_of_a_room_is_the_one_that_the_package_exports():
    from trinity.algorithm import advantage_fn

    assert advantage_fn.ADVANTAGE_FN is ADVANTAGE_FN
    assert advantage_fn.AdvantageFn is AdvantageFn


def test_the_core_knows_its_own_parts_by_name():
    assert ALGORITHM_TYPE.get("grpo") is GRPOAlgorithm
    assert ALGORITHM_TYPE.get("sft") is SFTAlgorithm
    assert ADVANTAGE_FN.get("grpo").__name__ == "GRPOAdvantageFn"


def test_a_default_config_wins_over_an_attribute_of_the_class():
    class Frugal(AlgorithmType):
        use_reference = True

        @classmethod
        def default_config(cls):
            return {"use_reference": False}

    assert Frugal.setting("use_reference") is False
    assert Frugal.setting("use_advantage") is True


def test_sft_refuses_to_explore(golden):
    class Config:
        mode = "both"

    with pytest.raises(ConfigError) as caught:
        SFTAlgorithm.check_config(Config())

    golden(str(caught.value), "sft_mode_both")


class ListSource:
    def __init__(self, rows):
        self.rows = rows

    def read(self, count, *, timeout_s, min_model_version=0):
        if not self.rows:
            raise StopIteration
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken


def a_strategy(rows, **sources):
    strategy = DefaultSampleStrategy()
    strategy.bind({"main": ListSource(rows)} | sources, train_batch_size=2, read_timeout_s=1.0)
    return strategy


def sampled_at(version, **info):
    return Experience(tokens=[1, 2], info={"model_version": version} | info)


def test_the_default_strategy_reads_the_first_source_until_its_end():
    strategy = a_strategy([sampled_at(0), sampled_at(0), sampled_at(0)], expert=ListSource([]))

    sizes = [len(strategy.sample(step)[0]) for step in (1, 2)]

    assert sizes == [2, 1]
    with pytest.raises(StopIteration):
        strategy.sample(3)


def test_it_reports_the_versions_that_sampled_the_batch():
    _, metrics = a_strategy([sampled_at(3), sampled_at(4, model_version_drift=2)]).sample(1)

    assert metrics == {
        "sample/model_version/mean": 3.5,
        "sample/model_version/max": 4.0,
        "sample/model_version/min": 3.0,
        "sample/model_version_drift/mean": 1.0,
        "sample/model_version_drift/max": 2.0,
        "sample/model_version_drift/min": 0.0,
    }


def test_rows_of_no_model_have_no_version():
    _, metrics = a_strategy([Experience(tokens=[1, 2])]).sample(1)

    assert metrics == {}
    assert issubclass(DefaultSampleStrategy, SampleStrategy)
    assert DefaultSampleStrategy.default_args() == {}
