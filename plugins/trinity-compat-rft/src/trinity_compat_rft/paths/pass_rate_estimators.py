"""``trinity.buffer.selector.difficulty_estimator``: predicted pass rates, as the core has them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trinity.extend import get_manager

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["InterpolationBetaPREstimator"]

_selector = get_manager().load("task_selector", "difficulty_based")
_Estimator: Any = importlib.import_module(_selector.__module__).PassRateEstimator


class InterpolationBetaPREstimator(_Estimator):  # type: ignore[misc]  # found by its name
    """The core's estimator with the published questions.

    Args:
        features: ``[n, 2]``, the pass rates of a weak and of a strong model.
        m: tries that an update is worth.
        lamb: what an update forgets, from 0 to 1.
        rho: the part of predictions, from 0 to 1.
        adaptive_rho: halve rho where the prediction was far off.
    """

    def __init__(
        self,
        features: NDArray[np.float64],
        m: int = 16,
        lamb: float = 0.2,
        rho: float = 0.2,
        *,
        adaptive_rho: bool = False,
    ) -> None:
        super().__init__(features, m=m, lamb=lamb, rho=rho, adaptive_rho=adaptive_rho)
        self.n, self.features = len(self.alphas), features

    def predict_pr(
        self,
        rng: np.random.Generator | None = None,
        indices: Sequence[int] | None = None,
        do_sample: bool = False,  # noqa: FBT001, FBT002 -- published
    ) -> NDArray[np.float64]:
        """Return the predicted pass rates of rows (None: of all), or draws of them."""
        import numpy as np

        rows = slice(None) if indices is None else np.asarray(indices)
        if do_sample:
            drawn = (rng or np.random.default_rng()).beta(self.alphas[rows], self.betas[rows])
            return np.asarray(drawn)
        return np.asarray(self.predicted[rows])

    def equivalent_count(self, indices: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Return how many tries the knowledge of each row is worth."""
        import numpy as np

        rows = slice(None) if indices is None else np.asarray(indices)
        return np.asarray((self.alphas + self.betas)[rows])
