"""How many experiences an optimizer step takes from the explorer."""

from __future__ import annotations

import pytest
from trinity.common.config import Config
from trinity.errors import ConfigError
from trinity.extend import get_manager
from trinity.runtime.assembly import rows_of_a_batch


def mixed(ratio, *, batch=4, total_steps=None):
    config = Config()
    config.mode, config.buffer.train_batch_size = "both", batch
    config.trainer.total_steps = total_steps
    config.algorithm.sample_strategy = "mix"
    config.algorithm.sample_strategy_args = {"expert_data_ratio": ratio}
    return config


def test_an_experts_rows_are_none_of_the_explorers() -> None:
    assert rows_of_a_batch(mixed(0.3, batch=10), get_manager()) == 7


def test_a_batch_of_experts_alone_would_be_trained_for_ever() -> None:
    # ceil(0.9 * 4) = 4: none is the explorer's
    with pytest.raises(ConfigError, match="mix reads none of the explorer's experiences") as error:
        rows_of_a_batch(mixed(0.9), get_manager())

    assert "set trainer.total_steps" in str(error.value)
    assert rows_of_a_batch(mixed(0.9, total_steps=5), get_manager()) == 1
