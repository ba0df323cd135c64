"""Which engine sampled how much, and from how many versions of the weights."""

from __future__ import annotations

import re
from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING

from trinity.explorer.finish import ENGINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

_NAME = re.compile(r"engine-\d+")


def tokens_by_engine(experiences: Iterable[Experience]) -> dict[str, float]:
    """Return how many tokens each engine sampled; a workflow may have said another ``engine``."""
    tokens: Counter[str] = Counter()
    for experience in experiences:
        name = str(experience.info.get(ENGINE))
        if experience.action_mask is not None and _NAME.fullmatch(name):
            tokens[name] += int(experience.action_mask.sum())
    return {name: float(count) for name, count in tokens.items()}


def versions_of_replies(experiences: Iterable[Experience]) -> list[int]:
    """Return of each how many versions sampled it: above 1 where weights changed between tokens."""
    return [len(experience.info.get("version_spans", ())) or 1 for experience in experiences]


class EngineRates:
    """Counts what engines sample from one step to the next."""

    def __init__(self) -> None:
        self._tokens: dict[str, float] = {}  # since the last step; of all that ever sampled

    def add(self, tokens: Mapping[str, float]) -> None:
        """Count the tokens of a group that ended."""
        for name, count in tokens.items():
            self._tokens[name] = self._tokens.get(name, 0.0) + count

    def of_step(self, seconds: float, *, versions: Sequence[int]) -> Metrics:
        """Return tokens a second by engine, and begin the next step.

        Args:
            seconds: since the last step.
            versions: of the replies that the step takes.
        """
        rates = {f"{name}/tokens_per_s": self._tokens[name] / seconds for name in self._tokens}
        self._tokens = dict.fromkeys(self._tokens, 0.0)
        return rates | ({"versions/per_reply": fmean(versions)} if versions else {})
