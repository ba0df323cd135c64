"""Rewarded runs in the ``serve.db`` of a service: store them, commit them, say what became due."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING, Any

from small_runs import RUN, forked

if TYPE_CHECKING:
    from pathlib import Path

FILE = RUN / "buffer" / "serve.db"
DUE = "due.json"  # of a run's folder
NUM_RUNS, NUM_CALLS = 12, 3


def serve_runs(folder: Path) -> None:
    """Store runs with their rewards, as a service does that is stopped before a commit."""
    from trinity.common.experience import EID, Experience
    from trinity_serve.run_store import SqliteRunStore

    store = SqliteRunStore(folder / FILE, service="fuzz", directory=str(RUN))
    for number in range(NUM_RUNS):
        name = f"run-{number}"
        run = store.run(name, task=f"task-{number % 3}").number
        for request in range(NUM_CALLS):
            reply = Experience(
                tokens=[number, request, *range(40)],
                prompt_length=2,
                logprobs=[-0.25 - 0.01 * place for place in range(40)],
                info={"agent": "", "model_version": number},
                response_text=f"what {name} said in call {request}",
                eid=EID(step=request),
            )
            store.keep(run, [reply], request=request, agent="")
        store.reward(name, number / NUM_RUNS, metrics={"turns": 3.0})
    store.close()


def commit_all(folder: Path) -> tuple[int | None, str]:
    """Commit the waiting replies in a separate process; write down what is trained next."""
    return forked(folder, lambda: _commit(folder))


def due_of(folder: Path) -> Any:
    """Return what became due (Any: json)."""
    path = folder / DUE
    return json.loads(path.read_text()) if path.exists() else None


def _commit(folder: Path) -> None:
    from trinity.errors import TrinityError
    from trinity_serve.run_store import SqliteRunStore

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    try:
        store = SqliteRunStore(FILE, service="fuzz", directory=str(RUN), is_expected=True)
        store.commit()
        due, step = [], 1
        while runs := store.due():
            due += [
                [one.name, one.task, one.agent, one.reward, dict(one.metrics)]
                + [[e.tokens.tolist(), e.logprobs.tolist()] for e in one.experiences]
                for one in runs
            ]
            store.taken([one.reward_number for one in runs], step=step)
            step += 1
    except TrinityError as error:
        print(f"Error: {error}", flush=True)  # nobody flushes at the end of a fork
        sys.exit(1)
    (folder / DUE).write_text(json.dumps(due))
