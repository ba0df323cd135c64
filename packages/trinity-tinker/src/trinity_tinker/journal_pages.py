"""What `tinker.db` says, for people: runs, requests and checkpoints; it is read, never changed."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trinity.errors import DataError
from trinity_ledger.sqlite_file import Bounds
from trinity_studio.view.charts import Line, chart
from trinity_studio.view.sqlite_file import opened, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Rows = list[tuple[Any, ...]]  # Any: as the columns are
    Ask = Callable[..., Rows]
    Values = dict[str, Any]  # Any: what a template draws

__all__ = ["JOURNAL", "overview", "requests"]

JOURNAL = "tinker.db"
PER_PAGE = 100
_TABLES = ("models", "requests", "samplings", "checkpoints", "counts")
_MOST = 200  # runs, sampling sessions and checkpoints of a page
_MOST_POINTS = 4000  # of a chart
_MOST_RUNS = 6  # in a chart
_STATES = {  # by name: what holds of a request
    "waiting": "finished IS NULL",
    "done": "finished IS NOT NULL AND form != 'error'",
    "failed": "form = 'error'",
}
_INDEXES = {"waiting": "unfinished", "failed": "failed"}  # by state; else that of a scope, or all
# A row of the table lies behind bodies of megabytes: what lists all reads an index alone.
_KINDS = """
SELECT kind, requests, waiting, failed, seconds / MAX(1, requests - waiting), longest FROM counts
WHERE scope = '' ORDER BY kind
"""
_SCOPE = "SELECT SUM(requests), SUM(failed), MAX(last) FROM counts WHERE scope = ?"
_LOSSES = f"""
SELECT seq, 1.0 * json_extract(summary, '$.loss') / json_extract(summary, '$.tokens')
FROM requests INDEXED BY of_scope
WHERE scope = ? AND kind = 'forward_backward' AND form = 'proto' ORDER BY made DESC
LIMIT {_MOST_POINTS}
"""
_MODELS = f"SELECT id, base, adapter, made, used FROM models ORDER BY made DESC LIMIT {_MOST}"
_SAMPLINGS = f"SELECT id, base, path, made FROM samplings ORDER BY made DESC LIMIT {_MOST}"
_CHECKPOINTS = f"""
SELECT path, kind, made, expires, size FROM checkpoints ORDER BY made DESC LIMIT {_MOST}
"""
_PAGE = f"""
SELECT made, scope, seq, kind, finished, form, retrieved, summary
FROM requests INDEXED BY {{index}} WHERE {{where}} ORDER BY made DESC LIMIT {PER_PAGE} OFFSET ?
"""
_COUNTS = {
    "": "SUM(requests)",
    "waiting": "SUM(waiting)",
    "done": "SUM(requests - waiting - failed)",
    "failed": "SUM(failed)",
}
_COUNT = "SELECT {count} FROM counts WHERE {where}"
_LATEST_ERRORS = _PAGE.format(index="failed", where=_STATES["failed"]).replace(
    f"LIMIT {PER_PAGE}", "LIMIT 5"
)
_ODD = (TypeError, ValueError, LookupError, OverflowError, RecursionError)  # of rows of others


def overview(folder: Path, query: Mapping[str, str]) -> Values:
    """Return the runs, their losses, the sampling sessions and checkpoints of a server."""
    del query
    page: Values = {"problem": "", "models": [], "samplings": [], "checkpoints": [], "charts": []}
    page |= {"kinds": [], "errors": [], "cards": []}
    with _noting(page), _asking(folder) as ask:
        page["kinds"] = ask(_KINDS)
        page["models"] = [_run(row, ask(_SCOPE, row[0])[0]) for row in ask(_MODELS)]
        page["samplings"] = [_sampling(row, ask(_SCOPE, row[0])[0]) for row in ask(_SAMPLINGS)]
        page["checkpoints"] = [
            {"path": path, "kind": kind, "made": _time(made), "expires": _time(ends), "size": size}
            for path, kind, made, ends, size in ask(_CHECKPOINTS)
        ]
        page["errors"] = [_request(row) for row in ask(_LATEST_ERRORS, 0)]
        page["charts"] = _charts(ask, [run["id"] for run in page["models"]][:_MOST_RUNS])
        page["cards"] = [
            ("runs", ask("SELECT COUNT(*) FROM models")[0][0]),
            ("requests", sum(row[1] for row in page["kinds"])),
            ("waiting", sum(row[2] or 0 for row in page["kinds"])),
            ("failed", sum(row[3] or 0 for row in page["kinds"])),
            ("checkpoints", ask("SELECT COUNT(*) FROM checkpoints")[0][0]),
        ]
    return page


def requests(folder: Path, query: Mapping[str, str]) -> Values:
    """Return a page of requests, newest first; the query may name scope, kind and state."""
    given = {name: query.get(name, "") for name in ("scope", "kind", "state")}
    number = query.get("page", "")
    place = int(number) if number.isdecimal() and len(number) < 9 else 0
    page: Values = {"problem": "", "requests": [], "page": place, "num_pages": 0, "count": 0}
    page |= {"given": given, "states": list(_STATES), "kinds": []}
    state = given["state"] if given["state"] in _STATES else ""
    of_counts = ["scope = ?", *(["kind = ?"] if given["kind"] else [])]
    parts = of_counts if given["scope"] else of_counts[1:]
    values = [given[name] for name in ("scope", "kind") if given[name]]
    where = " AND ".join([*parts, *([_STATES[state]] if state else [])]) or "TRUE"
    index = _INDEXES.get(state, "of_scope" if given["scope"] else "listed")
    count = _COUNT.format(count=_COUNTS[state], where=" AND ".join(of_counts))
    of_all = [given["scope"], *values[bool(given["scope"]) :]]
    with _noting(page), _asking(folder) as ask:
        page["kinds"] = [row[0] for row in ask(_KINDS)]
        page["count"] = ask(count, *of_all)[0][0] or 0
        page["num_pages"] = -(-page["count"] // PER_PAGE)
        rows = ask(_PAGE.format(index=index, where=where), *values, place * PER_PAGE)
        page["requests"] = [_request(row) for row in rows]
    return page


def _run(row: tuple[Any, ...], counts: tuple[Any, ...]) -> Values:
    name, base, adapter, made, used = row
    lora = json.loads(adapter)
    layers = [part for part in ("attn", "mlp", "unembed") if lora.get(f"train_{part}")]
    return {
        "id": name,
        "base": base or "was not made",
        "rank": lora.get("rank"),
        "layers": ", ".join(layers),
        "made": _time(made),
        "used": _time(used),
        "requests": counts[0] or 0,
        "failed": counts[1] or 0,
    }


def _sampling(row: tuple[Any, ...], counts: tuple[Any, ...]) -> Values:
    name, base, path, made = row
    count, failed, last = counts
    own = {"id": name, "weights": path or base, "made": _time(made), "last": _time(last)}
    return own | {"requests": count or 0, "failed": failed or 0}


def _request(row: tuple[Any, ...]) -> Values:
    made, scope, seq, kind, finished, form, retrieved, summary = row
    values = json.loads(summary or "{}")
    values = values if isinstance(values, dict) else {}
    state = "waiting" if finished is None else "failed" if form == "error" else "done"
    return {
        "made": _time(made),
        "scope": scope,
        "seq": seq,
        "kind": kind,
        "state": state,
        "seconds": (time.time() if finished is None else finished) - made,
        "is_fetched": retrieved is not None,
        "loss": values.pop("loss", None),
        "error": values.pop("error", ""),
        "facts": values,
    }


def _charts(ask: Ask, runs: list[str]) -> list[Any]:
    """Return a chart of the mean loss of a scored token, a line for each of the last runs."""
    lines = []
    for colour, run in enumerate(runs):
        points = [(int(seq), float(loss)) for seq, loss in ask(_LOSSES, run) if loss is not None]
        lines.append(Line(label=run, points=points[::-1], colour=colour))
    return [chart("loss of a token, by number of the request", lines)]


@contextmanager
def _asking(folder: Path) -> Iterator[Ask]:
    """Yield what answers queries."""
    bounds = Bounds(name=JOURNAL)
    with closing(opened(folder / JOURNAL, tables=_TABLES)) as file:
        yield lambda query, *values: bounds.fetched(file.execute(query, values))


@contextmanager
def _noting(page: Values) -> Iterator[None]:
    """Make what goes wrong inside the page's problem."""
    try:
        yield
    except (sqlite3.Error, DataError, *_ODD) as error:
        text = told(error)
        if "no such index" in text or "no such table: counts" in text:
            text = "it is of an older version; start trinity tinker serve on it once"
        page["problem"] = f"{JOURNAL} cannot be read as the journal of a server: {text}"


def _time(seconds: Any) -> str:  # Any: as the column is
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")[:19]
    except (TypeError, ValueError, OverflowError, OSError):
        return ""
