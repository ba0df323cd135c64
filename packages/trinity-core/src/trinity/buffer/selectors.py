"""The order in which the rows of a taskset are taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Selector(ABC):
    """Gives row numbers, without an end: each epoch gives every row once.

    Args:
        num_rows: how many rows there are.
        seed: seed of the order.
    """

    def __init__(self, num_rows: int, *, seed: int = 42) -> None:
        self.num_rows = num_rows
        self.seed = seed
        self.position = 0

    @abstractmethod
    def order(self, epoch: int) -> Sequence[int]:
        """Return the row numbers of an epoch, each once."""

    def get_indices(self, count: int) -> list[int]:
        """Return the next row numbers."""
        taken: list[int] = []
        while len(taken) < count:
            epoch, start = divmod(self.position, self.num_rows)
            rows = self.order(epoch)[start : start + count - len(taken)]
            self.position += len(rows)
            taken.extend(rows)
        return taken

    def feedback(self, indices: list[int], values: list[float]) -> None:  # noqa: B027
        """Take note of how the tasks of these rows went; most orders do not care."""

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class SequentialSelector(Selector):
    """As the rows stand in the file."""

    def order(self, epoch: int) -> Sequence[int]:
        return range(self.num_rows)


class ShuffleSelector(Selector):
    """In another order each epoch, a function of seed and epoch."""

    def __init__(self, num_rows: int, *, seed: int = 42) -> None:
        super().__init__(num_rows, seed=seed)
        self._kept: tuple[int, list[int]] = (-1, [])

    def order(self, epoch: int) -> Sequence[int]:
        if self._kept[0] != epoch:
            import numpy as np  # a check of a configuration needs none

            generator = np.random.default_rng(self.seed + epoch)
            self._kept = (epoch, generator.permutation(self.num_rows).tolist())
        return self._kept[1]


class RandomSelector(Selector):
    """Any rows, each once in a batch: a function of the seed and of how many were taken."""

    def order(self, epoch: int) -> Sequence[int]:
        return range(self.num_rows)

    def get_indices(self, count: int) -> list[int]:
        """Return so many different row numbers.

        Raises:
            ValueError: there are fewer rows.
        """
        if count > self.num_rows:
            raise ValueError(
                f"task selector random draws {count} different rows, but there are "
                f"{self.num_rows}. Lower buffer.batch_size, or use shuffle."
            )
        import numpy as np

        generator = np.random.default_rng(self.seed + self.position)
        self.position += count
        drawn: list[int] = generator.choice(self.num_rows, size=count, replace=False).tolist()
        return drawn


class EasyToHardSelector(Selector):
    """The rows of the highest features first, those of the first column before all.

    Of equal rows, the one that stands later in the file comes first, as published.

    Args:
        num_rows: how many rows there are.
        seed: not used; the order follows from the features.
        features: columns of the dataset, such as pass rates: higher is easier.

    Raises:
        ValueError: there is no column.
    """

    def __init__(
        self, num_rows: int, *, seed: int = 42, features: Mapping[str, Sequence[float]]
    ) -> None:
        super().__init__(num_rows, seed=seed)
        if not features:
            raise ValueError("task selector offline_easy2hard needs feature_keys, one or more")
        columns = list(features.values())
        self._order = sorted(
            range(num_rows),
            key=lambda row: (*(column[row] for column in columns), row),
            reverse=True,
        )

    def order(self, epoch: int) -> Sequence[int]:
        return self._order
