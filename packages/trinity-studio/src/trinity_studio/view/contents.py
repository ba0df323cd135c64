"""What the pages hold, before it is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trinity_debug.run_report import selection_of

from trinity_studio.view.conversation import MAX_TOKENS, facts, shown_sample
from trinity_studio.view.evaluations import evaluation_of, evaluations_of
from trinity_studio.view.exchanges import is_exchange, listed
from trinity_studio.view.failures import log_problems
from trinity_studio.view.figures import compared, figures, flat_figures, times_of
from trinity_studio.view.ledger import read_experiences, read_ledger, unasked
from trinity_studio.view.metric_names import metric_groups
from trinity_studio.view.reward_groups import reward_groups
from trinity_studio.view.runs_table import row_of, table_of
from trinity_studio.view.search import search
from trinity_studio.view.service import read_served, read_service

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from starlette.datastructures import QueryParams
    from starlette.requests import Request
    from trinity.common.secrets import Masker
    from trinity.runtime.record.sample_files import Sample
    from trinity_ledger.address import Address

    from trinity_studio.view.exchanges import Node
    from trinity_studio.view.run import Run

    Values = dict[str, Any]  # Any: what a template draws

__all__ = ["Contents", "experiences_in"]

PER_PAGE = 16
_STEPS = 60
_MOST_UNREAD = 8  # runs that a page waits for; the others are read behind it
_MOST_RUNS = 12  # whose charts stand below the table
_CALLS = 100  # of a rollout, or of a run of a service
_TASKS_PER_PAGE = 6  # whole groups are read, whatever is drawn of them


class Contents:
    """Gives the values of each page.

    Args:
        servers: the ledgers of servers that may be asked; None: whatever a run directory names.
    """

    def __init__(self, servers: Collection[Address] | None = ()) -> None:
        self._servers = servers

    def index(self, runs: Sequence[Run], *, query: QueryParams) -> Values:
        """Return the runs in a table, and in the same charts unless there are many.

        Of many that were never read the first page has some, and ``num_unread`` of the others.
        """
        found = table_of(runs, query=query, most_unread=_MOST_UNREAD)
        places = [row["place"] for row in found["rows"]]
        given = {int(one) for one in query.getlist("run") if one.isdecimal() and len(one) < 9}
        chosen = {place: runs[place] for place in places if not given or place in given}
        is_drawn = len(chosen) <= _MOST_RUNS and not found["num_unread"]
        charts = compared(chosen) if is_drawn else []
        return found | {"charts": charts, "chosen": chosen, "most_runs": _MOST_RUNS}

    def overview(self, run: Run, request: Request | None = None) -> Values:
        """Return the state of a run, its charts and its steps."""
        masker = run.provenance().masker
        steps = run.trained.steps
        query: Mapping[str, str] = request.query_params if request is not None else {}
        page = _whole(query.get("page"), 0)
        newest = list(reversed(steps))
        return {
            "row": row_of(run),
            "error": masker.text(str(run.status.get("error") or "")),
            "problems": [masker.text(one) for one in run.problems()],
            "selection": [masker.text(one) for one in selection_of(run.directory)],
            "findings": list(_findings(run.status.get("findings"), masker)),
            "charts": figures(run),
            "flat": flat_figures(run),
            "times": times_of(run),
            "steps": [_step_row(run, step) for step in newest[page * _STEPS : (page + 1) * _STEPS]],
            "page": page,
            "num_pages": -(-len(steps) // _STEPS),
            "is_live": run.is_live,
            "has_rollouts": run.rollouts.size > 0,
            "only_evaluates": run.status.get("mode") == "bench",
        }

    def step(self, run: Run, request: Request) -> Values:
        """Return the samples of a step, a page of them."""
        step = request.path_params["step"]
        samples, problem = run.trained.step(step)
        query = request.query_params
        order = query.get("order", "")
        wanted = _filtered(samples, query)
        if order in {"reward", "advantage"}:
            wanted.sort(key=lambda one: _known(getattr(one, order)), reverse=True)
        page = _whole(query.get("page"), 0)
        drawn = wanted[page * PER_PAGE : (page + 1) * PER_PAGE]
        steps = run.trained.steps
        return {
            "step": step,
            "problem": problem,
            "samples": [(shown_sample(one, run.text), facts(one)) for one in drawn],
            "num_samples": len(samples),
            "num_wanted": len(wanted),
            "page": page,
            "num_pages": -(-len(wanted) // PER_PAGE),
            "query": {name: query.get(name, "") for name in ("order", "only", "task")},
            "before": max((one for one in steps if one < step), default=None),
            "after": min((one for one in steps if one > step), default=None),
            "has_text": run.text is not None,
            "groups": reward_groups(samples),
        }

    def metrics(self, run: Run, request: Request) -> Values:
        """Return all metrics of the run by name."""
        return metric_groups({0: run}, query=request.query_params) | {"is_live": run.is_live}

    def evaluations(self, run: Run, request: Request | None = None) -> Values:
        """Return the evaluations whose samples are kept."""
        return {"evaluations": evaluations_of(run)}

    def evaluation(self, run: Run, request: Request) -> Values:
        """Return the samples of one evaluation, a page of them."""
        number = request.path_params["evaluation"]
        return evaluation_of(run, number, query=request.query_params)

    def search(self, run: Run, request: Request) -> Values:
        """Return what workflows returned that says a text."""
        query = request.query_params
        text, start = query.get("q", ""), _place(query.get("from"))
        return {"q": text, "found": search(run.rollouts.path, text, start=start) if text else None}

    def task(self, run: Run, request: Request) -> Values:
        """Return all rollouts of a task beside each other."""
        batch, task = request.path_params["batch"], request.path_params["task"]
        samples = run.trained.task(f"{batch}/{task}")
        by_run: dict[str, list[Any]] = {}
        for one in samples[: 4 * PER_PAGE]:
            drawn = shown_sample(one, run.text, limit=MAX_TOKENS)
            by_run.setdefault(one.run, []).append((drawn, facts(one)))
        is_whole = run.rollouts.follow()
        rows = run.rollouts.read(batch, task)
        trained = {one.eid for one in samples}
        return {
            "batch": batch,
            "task": task,
            "rollouts": by_run,
            "is_whole": is_whole,
            "num_samples": len(samples),
            "untrained": [row for row in rows if _eid(row) not in trained][:PER_PAGE],
            "exchanges": sorted({_run_of(row) for row in rows if is_exchange(row)}),
        }

    def rollouts(self, run: Run, request: Request) -> Values:
        """Return the tasks that were explored, a page of them, newest first."""
        is_whole = run.rollouts.follow()
        tasks = list(reversed(run.rollouts.tasks()))
        page = _whole(request.query_params.get("page"), 0)
        drawn = tasks[page * _TASKS_PER_PAGE : (page + 1) * _TASKS_PER_PAGE]
        return {
            "tasks": [(batch, task, run.rollouts.read(batch, task)) for batch, task in drawn],
            "num_tasks": len(tasks),
            "page": page,
            "num_pages": -(-len(tasks) // _TASKS_PER_PAGE),
            "is_whole": is_whole,
            "share": run.rollouts.end / max(1, run.rollouts.size),
        }

    def exchanges(self, run: Run, request: Request) -> Values:
        """Return the requests of an agent's run as a tree."""
        batch, task = request.path_params["batch"], request.path_params["task"]
        number = request.path_params["run"]
        run.rollouts.follow()
        rows = run.rollouts.read(batch, task, run=number)
        drawn = _calls(listed(rows), request)
        return {"batch": batch, "task": task, "of_run": number, **drawn}

    def failures(self, run: Run, request: Request | None = None) -> Values:
        """Return what the logs tell of failures, by plugin."""
        found, problem = log_problems(run.rooms)
        masker = run.provenance().masker
        for one in found:
            one.line, one.detail = masker.text(one.line), masker.text(one.detail)
        plugins = dict.fromkeys(one.plugin for one in found)
        grouped = {name: [one for one in found if one.plugin == name] for name in plugins}
        return {"failures": grouped, "problem": problem}

    def ledger(self, run: Run, request: Request | None = None) -> Values:
        """Return what the run's ledger says; None: it has none."""
        address = run.ledger
        if address is None or not self._may_ask(address):
            return {"ledger": None if address is None else unasked(address)}
        return {"ledger": read_ledger(address)}

    def written(self, run: Run, request: Request) -> Values:
        """Return the experiences in the run's ledger, a page of them."""
        address = run.ledger
        if address is None or self._may_ask(address):
            return experiences_in(address, request)
        return experiences_in(None, request) | {"ledger": unasked(address)}

    def _may_ask(self, address: Address) -> bool:
        """Return whether a ledger is a file, or on a server that somebody said may be asked."""
        return address.file is not None or self._servers is None or address in self._servers

    def service(self, run: Run, request: Request) -> Values:
        """Return the runs of a service, a page of them; None: it serves none."""
        page = _whole(request.query_params.get("page"), 0)
        return {
            "service": None if run.service is None else read_service(run.service, page=page),
            "page": page,
        }

    def served(self, run: Run, request: Request) -> Values:
        """Return the exchanges of a run of a service as a tree."""
        number = request.path_params["served"]
        found = None if run.service is None else read_served(run.service, number)
        requests = [] if found is None else listed(found.rows)
        return {"service": found, **_calls(requests, request)}

    def provenance(self, run: Run, request: Request | None = None) -> Values:
        """Return plugins, settings and starts."""
        found = run.provenance()
        starts = []
        for before, start in zip([{}, *found.starts], found.starts, strict=False):
            starts.append({**start, "changed_plugins": _changed_plugins(before, start)})
        return {"found": found, "starts": list(reversed(starts))}


def experiences_in(address: Address | None, request: Request) -> Values:
    """Return the experiences of a ledger, a page of them; None: there is none."""
    query = request.query_params
    page, step = _whole(query.get("page"), 0), query.get("step", "")
    found = None
    if address is not None:
        found = read_experiences(address, step=step, page=page, per_page=PER_PAGE)
    return {"ledger": found, "page": page, "step": step, "per_page": PER_PAGE}


def _calls(requests: Sequence[tuple[int, Node]], request: Request) -> Values:
    """Return the calls of a page, as they stand below each other."""
    page = _whole(request.query_params.get("page"), 0)
    return {
        "requests": requests[page * _CALLS : (page + 1) * _CALLS],
        "page": page,
        "num_pages": -(-len(requests) // _CALLS),
        "num_requests": len(requests),
    }


def _step_row(run: Run, step: int) -> Values:
    return {"step": step, "count": run.trained.count(step)}


def _filtered(samples: Sequence[Sample], query: Mapping[str, str]) -> list[Sample]:
    wanted = list(samples)
    if query.get("task"):
        wanted = [one for one in wanted if one.task == query["task"]]
    only = query.get("only", "")
    if only == "positive":
        wanted = [one for one in wanted if _known(one.advantage) > 0]
    elif only == "negative":
        wanted = [one for one in wanted if (one.advantage or 0) < 0]
    elif only == "masked":
        wanted = [one for one in wanted if not one.mask.all()]
    return wanted


def _changed_plugins(before: Values, start: Values) -> list[str]:
    then, now = before.get("plugins"), start.get("plugins")
    if not isinstance(then, dict) or not isinstance(now, dict):
        return []
    changed = [name for name in then.keys() | now.keys() if then.get(name) != now.get(name)]
    return [
        f"{name}: {then.get(name, 'none')} -> {now.get(name, 'none')}" for name in sorted(changed)
    ]


def _eid(row: Values) -> str:
    eid = row.get("eid") or {}
    parts = [str(eid.get(name, "")) for name in ("batch", "task", "run", "step")]
    return "/".join([*parts, eid["suffix"]] if eid.get("suffix") else parts)


def _run_of(row: Values) -> int:
    run = (row.get("eid") or {}).get("run", 0)
    return run if isinstance(run, int) else 0


def _known(value: float | None) -> float:
    return float("-inf") if value is None else value


def _place(text: str | None) -> int:
    """Return a byte of a file."""
    return int(text) if text and text.isdecimal() and len(text) < 16 else 0


def _whole(text: str | None, default: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 9 else default


def _findings(given: object, masker: Masker) -> Iterator[Values]:
    """Yield what advisors found, with the tasks of the samples that show it; others wrote it."""
    for one in given if isinstance(given, list) else ():
        if not isinstance(one, dict):
            continue
        ids = one.get("samples")
        found = [str(eid).split("/") for eid in ids] if isinstance(ids, list) else []
        texts = ("advisor", "role", "step", "message", "remedy", "action")
        yield {name: masker.text(str(one.get(name, ""))) for name in texts} | {
            "tasks": list(dict.fromkeys(tuple(eid[:2]) for eid in found if len(eid) > 1))
        }
