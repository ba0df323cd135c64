"""Count what a batch holds."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trinity.common.experience import Experience
    from trinity.common.metrics import Metrics
    from trinity.trainer.layout import Pack


def batch_metrics(experiences: Sequence[Experience], plan: Sequence[Sequence[Pack]]) -> Metrics:
    """Return lengths, token counts, what is computed once for several rows, and the padding."""
    lengths = [len(exp.tokens) for exp in experiences]
    distinct = sum(len(pack) for packs in plan for pack in packs)
    padded = sum(len(packs) * max(map(len, packs)) for packs in plan)
    return {
        **_spread("response_length", [exp.response_length for exp in experiences]),
        **_spread("prompt_length", [exp.prompt_length for exp in experiences]),
        "perf/total_num_tokens": float(sum(lengths)),
        "perf/tokens_computed": float(distinct),
        "perf/tokens_saved": float(sum(lengths) - distinct),
        "perf/shared_ratio": 1.0 - distinct / sum(lengths),
        "perf/padding_ratio": 1.0 - distinct / padded,
        "perf/num_micro_batches": float(len(plan)),
        "perf/num_samples": float(len(lengths)),
    }


def _spread(name: str, values: Sequence[int]) -> Metrics:
    return {
        f"{name}/mean": fmean(values),
        f"{name}/max": float(max(values)),
        f"{name}/min": float(min(values)),
    }
