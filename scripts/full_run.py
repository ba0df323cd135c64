"""Run nox sessions one after the other and note in the docs how each ended: ``nox -s everything``.

    python scripts/full_run.py SESSION...

Goes on after a failure and leaves with 1 at the end if one failed. The rows of the sessions that
ran are written anew, with their commit; those of others stay. What a session printed lies in
``.nox/everything/``.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "last-full-run.md"
LOGS = ROOT / ".nox" / "everything"
LIMIT_S = 3 * 3600.0  # of one session; then it has failed
NOX = (sys.executable, "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"))

HEAD = """\
# The last full run

What the sessions that CI does not run came to when they ran last. `nox -s everything` runs them
all and writes this page; `nox -s everything -- vllm docs` runs two and writes their rows. The
counts are pytest's; "and changes" is a commit with files that differed from it.

| session | date | commit | result | passed | failed | skipped | seconds |
|---|---|---|---|---|---|---|---|
"""
# Such as "== 2 failed, 30 passed, 12 skipped in 9.75s (0:00:09) ==", the frame missing with -q.
SUMMARY = re.compile(r"^=* ?((?:\d+ [a-z]+, )*\d+ [a-z]+) in [\d.]+s", re.MULTILINE)
COUNT = re.compile(r"(\d+) ([a-z]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """How a session ended."""

    session: str
    date: str
    commit: str
    result: str
    counts: Counter[str]
    seconds: float

    def __str__(self) -> str:
        """Return the row of the page; a session without pytest has no counts."""
        failed = self.counts["failed"] + self.counts["errors"] + self.counts["error"]
        numbers = (self.counts["passed"], failed, self.counts["skipped"])
        shown = [str(number) for number in numbers] if self.counts else ["", "", ""]
        cells = (f"`{self.session}`", self.date, self.commit, self.result, *shown)
        return f"| {' | '.join(cells)} | {self.seconds:.0f} |"


def main() -> None:
    """Run the sessions that the command line names."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the session
    names = sessions(sys.argv[1:])
    rows = []
    for number, name in enumerate(names, start=1):
        sys.stdout.write(f"everything: {name} ({number} of {len(names)})\n")
        sys.stdout.flush()
        row = run(name)
        sys.stdout.write(f"{row}\n")
        rows.append(row)
        note([row])
    failed = [row.session for row in rows if row.result != "ok"]
    if failed:
        sys.exit(
            f"failed: {', '.join(failed)}. What they printed lies in {LOGS.relative_to(ROOT)}."
        )


def sessions(asked: list[str]) -> list[str]:
    """Return the names, in their order: one that has parameters stands for several."""
    listed = json.loads(said([*NOX, "--list", "--json", "--session", *asked]))
    own = {one["session"]: one["name"] for one in listed}  # nox lists them in the noxfile's order
    return [name for word in asked for name in own if word in {name, own[name]}]


def run(name: str) -> Row:
    """Run one session, its output into a file."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{re.sub(r'[^a-z0-9_.]+', '-', name.lower()).strip('-')}.log"
    commit, began = current_commit(), time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [*NOX, "--session", name],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            start_new_session=True,
        )
        result = ended(process)
    return Row(
        session=name,
        date=datetime.now(UTC).date().isoformat(),
        commit=commit,
        result=result,
        counts=counted(log.read_text(encoding="utf-8", errors="replace")),
        seconds=time.monotonic() - began,
    )


def ended(process: subprocess.Popen[bytes]) -> str:
    """Wait for a session, and return how it ended; one that hangs is ended with what it started."""
    try:
        return "ok" if process.wait(timeout=LIMIT_S) == 0 else "**failed**"
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        if isinstance(error, subprocess.TimeoutExpired):
            return "**did not end**"
        raise


def current_commit() -> str:
    """Return the commit, with a mark where files differ from it."""
    git = ["git", "-C", str(ROOT)]
    commit = said([*git, "rev-parse", "--short=9", "HEAD"]).strip()
    changed = said([*git, "status", "--porcelain", "--", ".", f":!{PAGE.relative_to(ROOT)}"])
    return f"{commit} and changes" if changed.strip() else commit


def said(command: list[str]) -> str:
    """Return what a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def counted(output: str) -> Counter[str]:
    """Return the sum of what pytest says at the ends of its runs.

    >>> sorted(counted("== 1 failed, 30 passed, 12 skipped in 9.75s (0:00:09) ==").items())
    [('failed', 1), ('passed', 30), ('skipped', 12)]
    """
    counts: Counter[str] = Counter()
    for summary in SUMMARY.findall(output):
        counts.update({word: int(number) for number, word in COUNT.findall(summary)})
    return counts


def note(rows: list[Row]) -> None:
    """Write the rows into the page; rows of other sessions stay where they are."""
    lines = PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else []
    kept = {line.split("|")[1].strip(): line for line in lines if line.startswith("| `")}
    PAGE.write_text(page(kept | {f"`{row.session}`": str(row) for row in rows}), encoding="utf-8")


def page(rows: dict[str, str]) -> str:
    """Return the page with these rows, by the name of their session."""
    return HEAD + "".join(f"{rows[name]}\n" for name in sorted(rows))


if __name__ == "__main__":
    main()
