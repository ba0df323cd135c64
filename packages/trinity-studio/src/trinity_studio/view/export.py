"""Writes what the pages show into one file that opens without a server or a network."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from trinity.errors import ConfigError

from trinity_studio.view.contents import PER_PAGE, Contents
from trinity_studio.view.conversation import facts, shown_sample
from trinity_studio.view.figures import compared
from trinity_studio.view.ledger import read_experiences, read_ledger
from trinity_studio.view.pages import environment
from trinity_studio.view.report_file import refuse, replace
from trinity_studio.view.server import STATIC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trinity_ledger.address import Address

    from trinity_studio.view.ledger import LedgerPage
    from trinity_studio.view.run import Run

__all__ = ["write_report"]


def write_report(runs: Sequence[Run], path: Path, *, ledgers: Sequence[Address] = ()) -> int:
    """Write the report of these runs, and of ledgers that stand alone; return its size in bytes.

    Raises:
        ConfigError: the file cannot be written or holds something else than a report, or a ledger
            cannot be read.
    """
    refuse(path, runs=runs, ledgers=ledgers)
    for run in runs:
        run.follow()
    html = (
        environment()
        .get_template("report.html")
        .render(
            is_export=True,
            root="",
            style=Markup((STATIC / "style.css").read_text(encoding="utf-8")),  # ours
            written=datetime.now().astimezone().isoformat(sep=" ", timespec="minutes"),
            runs=runs,
            charts=compared(dict(enumerate(runs))),
            parts=[_part(run) for run in runs],
            ledgers=[_ledger(address) for address in ledgers],
        )
    )
    content = html.encode("utf-8", "replace")
    try:
        replace(path, content)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}. Name another file."
        ) from error
    return len(content)


def _ledger(address: Address) -> tuple[LedgerPage, list[dict[str, Any]]]:
    """Return a ledger's numbers, and its newest experiences (Any: as its columns are)."""
    page = read_ledger(address)
    newest = read_experiences(address, step="", page=0, per_page=PER_PAGE)
    if problem := page.problem or newest.problem:
        raise ConfigError(f"{problem.rstrip('.')}. Nothing was written.")
    return page, newest.experiences


def _part(run: Run) -> dict[str, Any]:
    contents = Contents()
    step = run.trained.steps[-1] if run.trained.steps else None
    samples = run.trained.step(step)[0] if step is not None else []
    drawn = [(shown_sample(one, run.text), facts(one)) for one in samples[:PER_PAGE]]
    return {
        "run": run,
        "step": step,
        "samples": drawn,
        **contents.overview(run),
        **contents.failures(run),
        **contents.provenance(run),
    }
