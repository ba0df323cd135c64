"""Compare each answer with the greedy one.

B rows of a batch   R response
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trinity.algorithm.advantage_fn.base import AdvantageFn, ComputedOn
from trinity.algorithm.ops import masked

if TYPE_CHECKING:
    from trinity.common.batch import ExperienceBatch

__all__ = ["REMAXAdvantageFn"]


class REMAXAdvantageFn(AdvantageFn):
    """Subtracts the reward of the greedy answer from each token's return (arXiv 2310.10505).

    ``A = sum of the later rewards - baseline``. The field ``reward_baselines`` ``[B]`` holds the
    reward of the answer at temperature 0 to each row's prompt.
    """

    computed_on: ClassVar[ComputedOn] = "batch"

    def __call__(
        self, exps: ExperienceBatch, **kwargs: Any
    ) -> tuple[ExperienceBatch, dict[str, float]]:
        """Return the batch with advantages, 0 where masked, and returns, the later rewards."""
        mask_BR = exps["action_mask"].bool()
        rewards_BR = masked(exps["token_level_rewards"], mask_BR)
        returns_BR = rewards_BR.flip(1).cumsum(1).flip(1)
        baseline_B1 = exps["reward_baselines"].to(returns_BR)[:, None]
        exps["returns"] = returns_BR
        exps["advantages"] = masked(returns_BR - baseline_B1, mask_BR)
        return exps, {}
