from __future__ import annotations

import pytest
import torch
from trinity.common.config.algorithm import OptimizerConfig
from trinity.errors import ConfigError
from trinity.trainer.optimizer import make_lr_schedule, make_optimizer


def rates(steps, **settings):
    lr = make_lr_schedule(OptimizerConfig(lr=1.0, **settings), total_steps=10)
    return [lr(step) for step in steps]


def test_a_constant_rate_stays():
    assert rates([0, 5, 10]) == [1.0, 1.0, 1.0]


def test_the_rate_rises_over_the_warmup_steps():
    assert rates([0, 1, 2, 3, 4], lr_warmup_steps=4) == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_ratio_of_all_steps_is_a_number_of_warmup_steps():
    assert rates([0, 1, 2], lr_warmup_steps_ratio=0.2) == [0.5, 1.0, 1.0]


def test_a_cosine_is_half_way_down_in_the_middle():
    # lowest 0.2, middle 0.2 + 0.8 / 2
    assert rates([0, 5, 10, 99], lr_scheduler_type="cosine", min_lr_ratio=0.2) == pytest.approx(
        [1.0, 0.6, 0.2, 0.2]
    )


def test_a_decaying_rate_without_an_end_is_refused():
    with pytest.raises(ConfigError, match="lr_scheduler_type is 'cosine', which needs to know"):
        make_lr_schedule(OptimizerConfig(lr_scheduler_type="cosine"), total_steps=0)


def test_another_optimizer_is_refused():
    with pytest.raises(ConfigError, match="optimizer_type is 'muon'"):
        make_optimizer([torch.nn.Parameter(torch.ones(1))], OptimizerConfig(optimizer_type="muon"))
