"""Count what a batch holds."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics

__all__ = ["batch_metrics"]


def batch_metrics(experiences: Sequence[Experience], plan: Sequence[Sequence[int]]) -> Metrics:
    """Return lengths, token counts and the padding of the micro-batches."""
    lengths = [len(exp.tokens) for exp in experiences]
    padded = sum(len(rows) * max(lengths[row] for row in rows) for rows in plan)
    return {
        **_spread("response_length", [exp.response_length for exp in experiences]),
        **_spread("prompt_length", [exp.prompt_length for exp in experiences]),
        "perf/total_num_tokens": float(sum(lengths)),
        "perf/padding_ratio": 1.0 - sum(lengths) / padded,
        "perf/num_micro_batches": float(len(plan)),
        "perf/num_samples": float(len(lengths)),
    }


def _spread(name: str, values: Sequence[int]) -> Metrics:
    return {
        f"{name}/mean": fmean(values),
        f"{name}/max": float(max(values)),
        f"{name}/min": float(min(values)),
    }
