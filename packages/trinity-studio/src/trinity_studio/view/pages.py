"""The pages: what each shows of which run."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse
from trinity.errors import ConfigError

from trinity_studio.view.comparing import compare, compare_metrics, compare_samples
from trinity_studio.view.contents import Contents, experiences_in
from trinity_studio.view.downloads import csv_response, series
from trinity_studio.view.folder_views import template_loader
from trinity_studio.view.ledger import read_ledger
from trinity_studio.view.runs_table import read_rows, runs_csv
from trinity_studio.view.shown import number, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from markupsafe import Markup
    from starlette.requests import Request
    from starlette.responses import Response
    from trinity_ledger.address import Address

    from trinity_studio.view.folder_views import Content, Folder
    from trinity_studio.view.run import Run

    Page = Callable[[Request], Awaitable[Response]]

__all__ = ["Pages", "environment"]


def environment(folders: Sequence[Folder] = ()) -> Environment:
    """Return what draws the templates: every value in them is text, unless it is our own HTML."""
    return _environment(tuple(sorted({(one.kind, one.view.package) for one in folders})))


@cache
def _environment(packages: tuple[tuple[str, str], ...]) -> Environment:
    """Return one whose templates are compiled once in a process."""
    drawing = Environment(
        loader=template_loader(dict(packages)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawing.filters |= {"shown": shown, "number": _number, "part": _part}
    return drawing


def _number(value: object, *, digits: int = 4) -> Markup:
    """Return a number as HTML; what stands in its place in a file of others is a text."""
    return shown(number(value, digits=digits), limit=300)


def _part(value: object) -> str:
    """Return what may stand between two slashes of an address."""
    return quote(str(value).encode("utf-8", "replace"), safe="")


class Pages:
    """Answers requests.

    Args:
        find: gives the runs that there are now; what was shown once keeps its place.
        root: first part of every address.
        ledgers: that are shown beside the runs.
        folders: that plugins show, beside the runs.
        may_ask_servers: whether servers are asked that only a run directory names.
    """

    def __init__(
        self,
        find: Callable[[], Sequence[Run]],
        *,
        root: str,
        ledgers: Sequence[Address] = (),
        folders: Sequence[Folder] = (),
        may_ask_servers: bool = False,
    ) -> None:
        self._find = find
        self._ledgers = list(ledgers)
        self._runs = list(find())
        self._root = root
        self._contents = Contents(None if may_ask_servers else frozenset(self._ledgers))
        self._folders = list(folders)
        self._drawing = environment(folders)
        self._reader = Thread()  # of the runs that a page did not wait for

    def routes(self) -> dict[str, Page]:
        """Return each page by its address."""
        own = self._contents
        found = {"/": self._page(self._index, "index.html")}
        for path, content, template in (
            ("", own.overview, "run.html"),
            ("/live", own.overview, "live.html"),
            ("/step/{step:int}", own.step, "step.html"),
            ("/task/{batch}/{task}", own.task, "task.html"),
            ("/rollouts", own.rollouts, "rollouts.html"),
            ("/exchanges/{batch}/{task}/{run}", own.exchanges, "exchanges.html"),
            ("/ledger", own.ledger, "ledger.html"),
            ("/ledger/experiences", own.written, "ledger_experiences.html"),
            ("/service", own.service, "service.html"),
            ("/service/{served:int}", own.served, "served.html"),
            ("/failures", own.failures, "failures.html"),
            ("/provenance", own.provenance, "provenance.html"),
            ("/metrics", own.metrics, "metrics.html"),
            ("/evaluations", own.evaluations, "evaluations.html"),
            ("/evaluations/{evaluation:int}", own.evaluation, "evaluation.html"),
            ("/search", own.search, "search.html"),
        ):
            found[f"/run/{{number:int}}{path}"] = self._page(
                partial(self._of_run, content), template
            )
        for path, of_several, template in (
            ("", compare, "compare.html"),
            ("/metrics", compare_metrics, "metrics.html"),
            ("/samples", compare_samples, "same_tasks.html"),
        ):
            found[f"/compare{path}"] = self._page(partial(self._of_several, of_several), template)
        found["/runs.csv"] = self._file(self._csv)
        for kind in ("json", "svg", "csv"):
            found[f"/series.{kind}"] = self._file(partial(self._series, kind))
        for path, what, template in (
            ("", lambda address, _: {"ledger": read_ledger(address)}, "ledger.html"),
            ("/experiences", experiences_in, "ledger_experiences.html"),
        ):
            found[f"/ledger/{{number:int}}{path}"] = self._page(
                partial(self._of_ledger, what), template
            )
        for place, folder in enumerate(self._folders):
            for path, (template, values) in folder.view.pages.items():
                page = partial(self._of_folder, place, values)
                found[f"/folder/{place}{path}"] = self._page(page, f"{folder.kind}/{template}")
        return found

    def _page(self, content: Callable[[Request], dict[str, Any] | None], template: str) -> Page:
        def drawn(request: Request) -> Response:
            values = content(request)
            if values is None:
                return PlainTextResponse("there is no such run", 404)
            html = self._drawing.get_template(template).render(
                root=self._root, runs=list(self._runs), is_export=False, **values
            )
            return HTMLResponse(html.encode("utf-8", "replace"))

        async def answer(request: Request) -> Response:
            return await run_in_threadpool(drawn, request)  # a slow page holds up no other

        return answer

    def _file(self, content: Callable[[Request], Response]) -> Page:
        async def answer(request: Request) -> Response:
            return await run_in_threadpool(content, request)

        return answer

    def _index(self, request: Request) -> dict[str, Any]:
        self._look_again()
        names = [one.name for one in self._ledgers]
        folders = [one.name for one in self._folders]
        found = self._contents.index(self._runs, query=request.query_params)
        if found["num_unread"] and not self._reader.is_alive():
            runs = list(self._runs)
            self._reader = Thread(
                name="trinity-view-rows", target=read_rows, args=(runs,), daemon=True
            )
            self._reader.start()
        return {"ledgers": names, "folders": folders} | found

    def _csv(self, request: Request) -> Response:
        return csv_response(runs_csv(self._runs, query=request.query_params), name="runs.csv")

    def _series(self, kind: str, request: Request) -> Response:
        return series(self._chosen(request), request.query_params, kind=kind)

    def _chosen(self, request: Request) -> dict[int, Run]:
        """Return the runs that an address names, as they are now; none: all."""
        runs, given = list(self._runs), request.query_params.getlist("run")
        places = {int(one) for one in given if one.isdecimal() and len(one) < 9}
        chosen = {place: run for place, run in enumerate(runs) if not given or place in places}
        for run in chosen.values():
            run.follow()
        return chosen

    def _of_several(
        self, content: Callable[..., dict[str, Any]], request: Request
    ) -> dict[str, Any]:
        chosen = self._chosen(request)
        query = urlencode([("run", place) for place in chosen])
        return {"chosen": chosen, "runs_query": query} | content(chosen, request.query_params)

    def _look_again(self) -> None:
        """Add the runs and stages that have begun since."""
        known = {run.directory for run in self._runs}
        with suppress(ConfigError, OSError):  # a named directory is gone, or may not be read
            self._runs += [run for run in self._find() if run.directory not in known]

    def _of_run(
        self, content: Callable[..., dict[str, Any]], request: Request
    ) -> dict[str, Any] | None:
        place = request.path_params["number"]
        if place >= len(self._runs):
            return None
        run = self._runs[place]
        run.follow()
        return {"run": run, "number_of_run": place, "runs_query": f"run={place}"} | content(
            run, request
        )

    def _of_ledger(
        self, content: Callable[..., dict[str, Any]], request: Request
    ) -> dict[str, Any] | None:
        place = request.path_params["number"]
        if place >= len(self._ledgers):
            return None
        return {"own": f"{self._root}/ledger/{place}"} | content(self._ledgers[place], request)

    def _of_folder(self, place: int, values: Content, request: Request) -> dict[str, Any]:
        folder, own = self._folders[place], f"{self._root}/folder/{place}"
        return {"own": own, "folder": folder} | values(folder.path, request.query_params)
