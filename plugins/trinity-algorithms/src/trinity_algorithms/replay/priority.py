"""Which experiences a replay buffer gives first."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from trinity.common.ports import PriorityFn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from trinity.common.experience import Experience


class LinearDecay(PriorityFn):
    """``model_version - decay * use_count``: new before old, fresh before used.

    Args:
        decay: how many versions one use is worth.
    """

    def __init__(self, decay: float = 2.0) -> None:
        self.decay = decay

    def __call__(self, experiences: Sequence[Experience]) -> tuple[float, bool]:
        return _decayed(experiences[0], self.decay), True


class DecayLimitRandomization(PriorityFn):
    """``model_version - decay * use_count + sigma * N(0, 1)``, for so many uses.

    Args:
        decay: how many versions one use is worth.
        use_count_limit: experiences are kept while they were used less often; 0 or below: always.
        sigma: the deviation of the noise, in versions; 0 or above.
        seed: of the noise.

    Raises:
        ValueError: ``sigma`` is negative.
    """

    def __init__(
        self,
        decay: float = 2.0,
        use_count_limit: int = 3,
        sigma: float = 0.0,
        seed: int = 42,
    ) -> None:
        if not sigma >= 0:
            raise ValueError(f"sigma is {sigma}; it must be 0 or above")
        self.decay = decay
        self.use_count_limit = use_count_limit
        self.sigma = sigma
        self._seed = seed
        self._num_judged = 0

    def __call__(self, experiences: Sequence[Experience]) -> tuple[float, bool]:
        first = experiences[0]
        self._num_judged += 1
        chance = random.Random(f"{self._seed}/{self._num_judged}")
        noise = self.sigma * chance.gauss(0.0, 1.0) if self.sigma else 0.0
        num_uses = first.info.get("use_count", 0)
        is_kept = self.use_count_limit <= 0 or num_uses < self.use_count_limit
        return _decayed(first, self.decay) + noise, is_kept

    def state_dict(self) -> dict[str, Any]:
        return {"num_judged": self._num_judged}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._num_judged = state["num_judged"]


def _decayed(experience: Experience, decay: float) -> float:
    version = experience.info.get("model_version") or 0  # None: no weights of ours sampled it
    return float(version - decay * experience.info.get("use_count", 0))
