"""All runs in a table: sorted, filtered, with the settings in which they differ; and as CSV."""

from __future__ import annotations

import csv
import io
import math
import os
from typing import TYPE_CHECKING, Any

from trinity_studio.view.differences import NO_VALUE, differing, settings_of
from trinity_studio.view.notes import read_notes
from trinity_studio.view.plots import plain_cell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trinity_studio.view.run import Run

    Values = dict[str, Any]  # Any: what a template draws

__all__ = ["COLUMNS", "read_rows", "row_of", "runs_csv", "table_of"]

_MOST_KEYS = 8  # columns of settings on the page; the CSV has all
#: column, its title
COLUMNS = {
    "name": "run",
    "state": "state",
    "trained": "train steps",
    "reward": "reward",
    "evaluation": "held out",
    "best": "best",
    "loss": "loss",
    "num_samples": "samples",
}
_FILES = ("run.json", "bench.json", "monitor/metrics.jsonl", "config.yaml", "notes.json", "samples")
_NUMBERS = ("trained", "reward", "evaluation", "best", "loss", "num_samples")


def row_of(run: Run) -> Values:
    """Return a run as a row of a table."""
    reward = run.metrics.series("rollout/reward/mean", role="explorer")
    evaluated = run.metrics.series(*run.held_out)
    loss = run.metrics.series("actor/loss", role="trainer")
    values = [value for _, value in evaluated if math.isfinite(value)]
    return {
        "name": run.name,
        "state": run.state,
        "explored": max((s for s, _ in reward), default=run.status.get("explore_steps", 0)),
        "trained": max((s for s, _ in loss), default=run.status.get("train_steps", 0)),
        "total": run.status.get("total_steps", 0),
        "explores": run.status.get("mode") != "train",
        "seconds": run.status.get("seconds"),
        "reward": reward[-1][1] if reward else None,
        "first_evaluation": evaluated[0][1] if evaluated else None,
        "evaluation": evaluated[-1][1] if evaluated else None,
        "best": max(values, default=None),
        "loss": loss[-1][1] if loss else None,
        "num_samples": run.trained.num_samples,
    }


def read_rows(runs: Sequence[Run]) -> None:
    """Read the runs of which there is no row yet; a table then has them at once."""
    for run in runs:
        if run.row is None:
            _with_settings(0, run)


def table_of(
    runs: Sequence[Run], *, query: Mapping[str, str], most_unread: int | None = None
) -> Values:
    """Return the rows that are wanted, in the order that is wanted.

    Args:
        runs: all of them; the number of one is its place.
        query: ``q``, words that all have to stand in a row; ``sort``, a column or a setting;
            ``down``, whether the largest comes first.
        most_unread: so many runs are read that were not read before, and ``num_unread`` is how
            many are left out; None: all are read.
    """
    unread = [place for place, run in enumerate(runs) if run.row is None]
    later = set(unread[most_unread:] if most_unread is not None else ())
    rows = [_with_settings(place, run) for place, run in enumerate(runs) if place not in later]
    all_keys = _keys(rows)
    words = query.get("q", "").lower().split()
    wanted = [row for row in rows if all(word in _text(row, all_keys) for word in words)]
    keys = _keys(wanted)
    sort = query.get("sort", "")
    if sort in COLUMNS or sort in all_keys:
        wanted.sort(key=lambda row: _order(row, sort), reverse=query.get("down") == "1")
    return {
        "rows": _stages_together(wanted),
        "keys": keys[:_MOST_KEYS],
        "num_more_keys": max(0, len(keys) - _MOST_KEYS),
        "all_keys": all_keys,
        "columns": COLUMNS,
        "q": query.get("q", ""),
        "sort": sort,
        "is_down": query.get("down") == "1",
        "num_runs": len(runs),
        "num_unread": len(later),
        "has_notes": any(row["notes"].tags or row["notes"].note for row in rows),
    }


def runs_csv(runs: Sequence[Run], *, query: Mapping[str, str]) -> str:
    """Return the table with all settings in which runs differ."""
    found = table_of(runs, query=query)
    file = io.StringIO()
    lines = csv.writer(file)
    lines.writerow([*COLUMNS, "tags", "note", *map(plain_cell, found["all_keys"])])
    for row in found["rows"]:
        cells = [row[name] if name in _NUMBERS else plain_cell(row[name]) for name in COLUMNS]
        notes = [plain_cell(" ".join(row["notes"].tags)), plain_cell(row["notes"].note)]
        settings = [_setting_cell(row["settings"].get(key, "")) for key in found["all_keys"]]
        lines.writerow([*cells, *notes, *settings])
    return file.getvalue()


def _stages_together(rows: Sequence[Values]) -> list[Values]:
    """Return the rows, with the stages of a run behind each other in the order they began.

    They stand where the last of them stood, which has the run's result.
    """
    stages: dict[object, list[Values]] = {}
    for row in rows:
        stages.setdefault(row["run"] or row["place"], []).append(row)
    found: list[Values] = []
    for row in rows:
        own = sorted(stages[row["run"] or row["place"]], key=lambda one: one["began_ns"])
        if row is own[-1]:
            heading = row["run"] if len(own) > 1 else ""
            found += [one | {"heading": "" if number else heading, "is_below": bool(heading)}
                      for number, one in enumerate(own)]  # fmt: skip
    return found


def _run_of_stage(run: Run) -> str:
    """Return the name of the run that a stage is of; empty: it is a whole run."""
    stage = run.status.get("stage")
    return run.name.rpartition("/")[0] if isinstance(stage, str) and stage else ""


def _keys(rows: Sequence[Values]) -> list[str]:
    """Return the settings in which runs differ; of seeds the one that the others follow."""
    keys = [key for key in differing(row["settings"] for row in rows) if not key.endswith(".seed")]
    by_hand = {key for row in rows for key in row["written"]}
    return sorted(keys, key=lambda key: key not in by_hand)  # first those that somebody wrote


def _with_settings(place: int, run: Run) -> Values:
    """Return a run's row; of a finished one whose files are as they were, the row of before."""
    stamp = _stamp(run)
    if run.row is None or run.row[0] != stamp or run.row[1]["state"] != "finished":
        run.follow()
        own = {
            "settings": settings_of(run),
            "written": run.provenance().written,
            "notes": read_notes(run.directory),
            "run": _run_of_stage(run),
            "began_ns": stamp[_FILES.index("config.yaml")][0],
        }
        run.row = stamp, row_of(run) | own
    return run.row[1] | {"place": place}


def _stamp(run: Run) -> list[tuple[int, int]]:
    """Return what changes with the files that a row is made of."""
    folder, found = str(run.directory), []
    for name in _FILES:
        try:
            stat = os.stat(f"{folder}/{name}")
            found.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append((0, 0))
    return found


def _text(row: Values, keys: Sequence[str]) -> str:
    """Return what a filter looks at."""
    settings = [f"{key}={row['settings'].get(key, NO_VALUE)}" for key in keys]
    notes = row["notes"]
    return " ".join([row["name"], row["state"], *notes.tags, notes.note, *settings]).lower()


def _order(row: Values, column: str) -> tuple[bool, float, str]:
    """Return by what a row is sorted: numbers by size, others by letters, nothing first."""
    value = row[column] if column in COLUMNS else row["settings"].get(column)
    size = _size(value)
    return (size is not None or bool(value), 0.0 if size is None else size, str(value))


def _size(value: object) -> float | None:
    try:
        size = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return size if math.isfinite(size) else None


def _setting_cell(value: str) -> str:
    return value if _size(value) is not None else plain_cell(value)
