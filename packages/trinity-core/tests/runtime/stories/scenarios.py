"""Read the frozen stories of all sync styles, and the scenarios that they tell of.

``frozen_stories.jsonl`` holds one scenario a line: its section, the fields of ``Scenario`` that are
no defaults, and its story, one text for each thing that happened, in order:

| line              | what happened                                                             |
|-------------------|---------------------------------------------------------------------------|
| ``begin 3 v1``    | rollout 3 begins (a rollout step, from 1; or a group, from 0): version 1   |
| ``noted 3 4``     | the loop has been told of the end of rollout step 3, which left 4 rows    |
| ``took 2 3x2 4``  | groups: the rows of train step 2 are in hand; a stop waits for the step   |
| ``train 2 3x2 4`` | train step 2 begins, on rows of rollouts 3, 3 and 4, in that order        |
| ``sync 2``        | rollouts have the weights of train step 2 from now on                     |
| ``evaluate 3 v2`` | an evaluation begins after rollout step 3, with version 2                 |
| ``save 2``        | a checkpoint is written after train step 2                                |
| ``note 2``        | the same, where only the progress of a checkpoint that exists is rewritten|
| ``restored 2``    | the run begins again from its newest checkpoint; rollouts have version 2  |

A run that was killed before its first checkpoint begins again without a line.

Everything happens on one clock: a line is written when a thing begins, and ``Scenario.seconds``
says how long it takes. Syncs and checkpoints take no time.

The stories were recorded from the scheduling classes at commit 6e73c0d, before they were replaced
by one loop. A story changes only with a decision that says why, and a line in the changelog;
``write_stories`` then writes the file anew, and the difference is reviewed. Since then:

* rows of later rounds are never trained early (one story, "rows too old");
* overlapped, the rollout steps of a round begin by themselves (38 stories of fixed; same numbers);
* where groups begin one by one, the newest weights are evaluated (6 stories of fully_async);
* a run that is asked to stop during a sync, or while it waits, begins nothing more (17 stories).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

FROZEN = Path(__file__).with_name("frozen_stories.jsonl")
WITH_ROWS = {"took", "train"}
WITH_VERSION = {"begin", "evaluate"}
COUNTED = {"begin", "noted", "took", "train", "evaluate"}  # by stops and kills


@dataclass(frozen=True)
class Scenario:
    """The settings of a run, and how long each thing in it takes.

    ``stops`` and ``kills`` name, for each start of the run in turn, after how many lines of its
    story (those in ``COUNTED``) it is asked to stop, or killed; when they are used up it runs to
    its end. A run that is asked to stop does so where it next looks, but not between ``took`` and
    ``train``, and leaves a checkpoint; a killed run ends at once, with the line written.
    """

    style: str
    interval: int = 1
    offset: int = 0  # of style fixed
    inflight: int = 2  # batches of groups, or rollout steps
    window: float = 0.0
    groups: int = 2  # of a rollout step; of a batch where groups begin one by one
    rows: tuple[int, ...] = (4,)  # that rollouts leave, in turn
    batch: int = 4  # rows of a train step
    steps: int = 6  # rollout steps
    train_limit: int | None = None  # train steps
    tasks_end_after: int | None = None  # rollout steps
    has_evaluation: bool = False
    eval_interval: int = 0
    eval_on_startup: bool = False
    save_interval: int = 0
    overlap: bool = False  # over Ray: rollouts and training may run at the same time
    mode: str = "both"  # explore: no trainer; train: no rollouts, rows of `steps` steps are there
    replay: bool = False  # the storage gives each row again, after all others
    max_age: int | None = None  # off-policy steps; older rows are dropped when a batch is sampled
    kills: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()
    train_s: float = 1.0
    seed: int = 0

    def rows_of(self, number: int) -> list[int]:
        """Return the rows that a rollout leaves: its number, once for each."""
        return [number] * self.rows[number % len(self.rows)]

    def seconds(self, kind: str, number: int) -> float:
        """Return how long a rollout, a train step or an evaluation takes."""
        mean = {"rollout": 1.0, "train": self.train_s, "evaluate": 2.0}[kind]
        return mean * random.Random(f"{self.seed} {kind} {number}").uniform(0.2, 1.8)


@dataclass(frozen=True, kw_only=True)
class FrozenStory:
    """A scenario, and what happened in it."""

    section: str  # which kind of scenario it was drawn from, such as "overlap, killed"
    scenario: Scenario
    story: list[str]


def read_stories(path: Path = FROZEN) -> list[FrozenStory]:
    """Return all stories of a file."""
    records = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        FrozenStory(
            section=record["section"],
            scenario=Scenario(**{k: _as_field(v) for k, v in record["scenario"].items()}),
            story=record["story"],
        )
        for record in records
    ]


def write_stories(stories: Iterable[FrozenStory], path: Path = FROZEN) -> None:
    """Write a file of stories, the defaults of scenarios left out."""
    with path.open("w", encoding="utf-8") as file:
        for one in stories:
            record = {
                "section": one.section,
                "scenario": _without_defaults(one.scenario),
                "story": one.story,
            }
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


def story_line(kind: str, number: int, what: int | list[int] | None = None) -> str:
    """Return the text of what happened: ``story_line("train", 2, [3, 3, 4])``."""
    if isinstance(what, list):
        runs = [(row, len(list(same))) for row, same in groupby(what)]
        return " ".join([kind, str(number), *(f"{r}x{n}" if n > 1 else str(r) for r, n in runs)])
    if what is None:
        return f"{kind} {number}"
    return f"{kind} {number} {'v' if kind in WITH_VERSION else ''}{what}"


def parse_line(line: str) -> tuple[Any, ...]:
    """Return what was given to ``story_line``: ``("train", 2, [3, 3, 4])``, ``("sync", 2)``."""
    kind, number, *rest = line.split()
    if kind in WITH_ROWS:
        pairs = [run.partition("x") for run in rest]
        rows = [int(row) for row, _, count in pairs for _ in range(int(count or 1))]
        return kind, int(number), rows
    return kind, int(number), *(int(text.removeprefix("v")) for text in rest)


def _as_field(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _without_defaults(scenario: Scenario) -> dict[str, Any]:
    given = {one.name: getattr(scenario, one.name) for one in fields(scenario)}
    return {one.name: given[one.name] for one in fields(scenario) if given[one.name] != one.default}
