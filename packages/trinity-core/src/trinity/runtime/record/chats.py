"""How many requests of a run's API clients went on by recorded token ids."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trinity.common.models.continuation import BREAKS
from trinity.monitor.jsonl import read_metrics

if TYPE_CHECKING:
    from pathlib import Path

_FEW = 0.9  # of the requests that hold an earlier reply
_NUM_NAMED = 3


def broken_chats(monitor_dir: Path) -> str:
    """Return a line on the chats that did not go on and why; empty: nine in ten did, or all.

    Each reply counts once; those of runs that were left out do not.
    """
    rows = {row["step"]: row for row in read_metrics(monitor_dir, role="explorer")}
    counts: Counter[str] = Counter()
    for row in rows.values():
        counts["continued"] += int(row.get("rollout/api/continued/sum") or 0)
        for word in BREAKS:
            counts[word] += int(row.get(f"rollout/api/broken_{word}/sum") or 0)
    total, continued = counts.total(), counts.pop("continued", 0)
    if not total or continued >= _FEW * total:
        return ""
    reasons = [
        f"{word} {number} ({BREAKS[word]})"  # type: ignore[index]  # its keys are these words
        for word, number in counts.most_common(_NUM_NAMED)
        if number
    ]
    return (
        f"of {total} replies to chats with an earlier one, {continued} ({continued / total:.0%}) "
        f"went on by its token ids; the others: {'; '.join(reasons)}. All were trained as they "
        f"were sampled. See docs/explanation/chats.md."
    )
