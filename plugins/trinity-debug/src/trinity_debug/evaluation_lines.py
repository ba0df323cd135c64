"""What the evaluations of a run gave, in lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def evaluation_lines(rows: Iterable[Mapping[str, Any]], *, is_bench: bool) -> Iterator[str]:
    """Yield a line for each reward of an evaluation set: the newest, and that of the beginning.

    Args:
        rows: of ``metrics.jsonl`` (Any: json).
        is_bench: whether the run trains nothing, so that its steps say nothing.

    >>> rows = [{"step": 0, "eval/a/reward/mean@4": 0.5}, {"step": 8, "eval/a/reward/mean@4": 0.75}]
    >>> list(evaluation_lines(rows, is_bench=False))
    ['eval/a/reward/mean@4 0.750 after step 8 (0.500 after step 0)']
    >>> list(evaluation_lines(rows[:1], is_bench=True))
    ['eval/a/reward/mean@4 0.500']
    """
    found: dict[str, list[tuple[float, int]]] = {}
    for row in rows:
        for name, value in row.items():
            if "/reward/mean@" in name and value is not None:
                found.setdefault(name, []).append((value, int(row["step"])))
    for name, values in found.items():
        (first, begun), (last, step) = values[0], values[-1]
        before = f" ({first:.3f} after step {begun})" if step != begun else ""
        after = "" if is_bench and not step else f" after step {step}"
        yield f"{name} {last:.3f}{after}{before}"
