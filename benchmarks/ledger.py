"""What a ledger costs: experiences a CPU second from written to decoded, and claims at any size.

    python benchmarks/ledger.py                              # SQLite, 600 tokens an experience
    python benchmarks/ledger.py --url postgresql://me@host/db
    python benchmarks/ledger.py --rows 1000000               # claims and cuts among as many rows

A database that is named must be empty, and is left full. CPU seconds are this process's alone, not
those of a PostgreSQL server.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import TYPE_CHECKING

import torch
from trinity.common.config import ExperienceBufferConfig
from trinity.common.experience import EID, Experience
from trinity_ledger.storage import SqlStorage

if TYPE_CHECKING:
    from collections.abc import Callable

RUNS, TASKS, TOKENS, PROMPT = 8, 64, 600, 100
BATCH = RUNS * TASKS
AIMS = {"sqlite": 5000, "postgresql": 4000}


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", default="", help="of the database; default: a new SQLite file")
    parser.add_argument("--rows", type=int, default=0, help="trained rows to claim among")
    parser.add_argument("--steps", type=int, default=10, help="to write and read")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{folder}/ledger.db"
        storage = SqlStorage(ExperienceBufferConfig(storage_type="sql"), path=url)
        first = 1
        if given.rows:
            first = filled(storage, rows=given.rows)
        throughput(storage, kind=url.partition(":")[0].partition("+")[0], first=first, given=given)
        if given.rows:
            at_size(storage, first=first + given.steps)
        storage.close()


def throughput(storage: SqlStorage, *, kind: str, first: int, given: argparse.Namespace) -> None:
    """Print experiences a CPU second, written and read."""
    batches = [batch(step) for step in range(first, first + given.steps)]
    written = cpu_s(lambda: [storage.write(one) for one in batches])
    read = cpu_s(lambda: [take(storage, first + n) for n in range(given.steps)])
    count = given.steps * BATCH
    rates = [f"{count / seconds:,.0f}" for seconds in (written, read, written + read)]
    print(
        f"{kind}, {TOKENS} tokens: written {rates[0]}, read and decoded {rates[1]}, both "
        f"{rates[2]} experiences a CPU second (aim: {AIMS.get(kind, 0):,})"
    )


def at_size(storage: SqlStorage, *, first: int) -> None:
    """Print how long a claim of a batch takes, and a cut back of 20 steps."""
    ledger, claims = storage._ledger, []
    for step in range(first, first + 20):
        storage.write(batch(step))
        began = time.perf_counter()
        ledger.claim(BATCH, step=step, first=0, may_be_fewer=False)
        claims.append(1000 * (time.perf_counter() - began))
    began = time.perf_counter()
    ledger.cut_back(first - 1)
    cut_s = time.perf_counter() - began
    page = "SELECT uid, reward, version FROM experience WHERE train_step = ? LIMIT 50"
    began = time.perf_counter()
    ledger._database.read(lambda rows: rows.all(page, first - 2))
    page_ms = 1000 * (time.perf_counter() - began)
    print(
        f"claim of {BATCH}: median {statistics.median(claims):.1f} ms, most {max(claims):.1f} ms "
        f"(aim: 30); cut back 20 steps: {cut_s:.3f} s (aim: 0.5); "
        f"a page of a step: {page_ms:.2f} ms"
    )


def filled(storage: SqlStorage, *, rows: int) -> int:
    """Put trained rows into the ledger, without contents; return the first step after them."""
    began, num_steps = time.perf_counter(), rows // BATCH

    def step(number: int) -> None:
        def work(table: object) -> None:
            ((packet,),) = table.all(  # type: ignore[attr-defined]
                "INSERT INTO packet (task, outcome, body) VALUES (0, '', NULL) RETURNING id"
            )
            table.insert_experiences(  # type: ignore[attr-defined]
                [
                    (packet, place, f"filled/{number}/{place}", 0, 0, number - 1, 0.5, TOKENS)
                    for place in range(BATCH)
                ]
            )
            table.do(  # type: ignore[attr-defined]
                "UPDATE experience SET train_step = ?, train_place = place WHERE packet = ?",
                number,
                packet,
            )

        storage._ledger._database.write(work)

    for number in range(1, num_steps + 1):
        step(number)
    print(f"{num_steps * BATCH:,} trained rows in {time.perf_counter() - began:.0f} s")
    return num_steps + 1


def batch(step: int) -> list[Experience]:
    """Return the experiences of a step."""
    reply = TOKENS - PROMPT
    return [
        Experience(
            tokens=torch.randint(0, 50_000, (TOKENS,)),
            prompt_length=PROMPT,
            logprobs=torch.randn(reply),
            advantages=torch.randn(reply),
            returns=torch.randn(reply),
            reward=0.5,
            eid=EID(batch=str(step), task=task, run=run),
            info={"model_version": step - 1, "plugins": "0123456789abcdef"},
            metrics={"accuracy": 1.0},
            prompt_text="what is asked " * 20,
            response_text="what is said " * 100,
        )
        for task in range(TASKS)
        for run in range(RUNS)
    ]


def take(storage: SqlStorage, step: int) -> None:
    """Read a batch for a step."""
    storage.read_for(step)
    assert len(storage.read(BATCH, timeout_s=0)) == BATCH


def cpu_s(work: Callable[[], object]) -> float:
    """Return the CPU seconds that something takes in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


if __name__ == "__main__":
    main()
