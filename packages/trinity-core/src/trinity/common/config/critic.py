"""``trainer.critic``: the model that says what a token is worth."""

from __future__ import annotations

from typing import Annotated

from trinity.common.config.algorithm import LossAggMode, OptimizerConfig
from trinity.common.config.base import Lowercase, StrictModel, core, other, section

__all__ = ["CRITIC", "CriticConfig", "CriticOptimizerConfig"]

CRITIC = "algorithms with a critic"


class CriticOptimizerConfig(OptimizerConfig):
    """``trainer.critic.optimizer``: as that of the algorithm, with a learning rate of its own."""

    lr: float = core(1e-5, "learning rate", ge=0)


class CriticConfig(StrictModel):
    """``trainer.critic``: how the critic learns.

    Published files set it below ``trainer.trainer_config.critic``: ``optim`` and the rest.
    """

    optimizer: CriticOptimizerConfig = section(CriticOptimizerConfig, "the critic's optimizer")
    cliprange_value: float = other(
        0.5, "how far a value may move from that of before the step", used_by=CRITIC, gt=0
    )
    grad_clip: float = other(1.0, "largest gradient norm; 0: no limit", used_by=CRITIC, ge=0)
    loss_agg_mode: Annotated[LossAggMode, Lowercase] = other(
        "token-mean", "how the errors of tokens become one number", used_by=CRITIC
    )
