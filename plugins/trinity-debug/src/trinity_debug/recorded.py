"""The calls of a run that was trained, as its samples hold them.

tokens   p p p p | r r e | t t t | r r e      p prompt, r reply, e end, t what a tool said
own mask           1 1 1   0 0 0   1 1 1      two calls: (p, rre) and (p rre ttt, rre)
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trinity.common.models.recorded_calls import REPLY_NAMES
from trinity.errors import ConfigError, DataError
from trinity.runtime.record.sample_files import places_of, read_rows, read_step

from trinity_debug.difference import reward_of
from trinity_debug.environments import RecordedAnswers, answers_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from trinity.runtime.record.sample_files import Sample

_CHAIN = re.compile(r"chain-(\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One call of the model."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    logprobs: tuple[float, ...]  # (): not known
    is_cut: bool  # the reply does not end with an end token
    order: tuple[int, int] | None = None  # request and reply of the run; None: nobody noted it


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedRollout:
    """One try of a task."""

    batch: str
    task: int
    run: int
    samples: tuple[Sample, ...]  # by step, then by chain, then as they were written
    taskset: str  # as info["task_index"] says
    row: int
    exchanges: tuple[Exchange, ...]  # in the order of the calls
    answers: RecordedAnswers  # of its environments

    @property
    def rewards(self) -> dict[str, float | None]:
        """Return the reward of each experience, by its id."""
        return {one.eid: reward_of(one) for one in self.samples}

    @property
    def num_unordered(self) -> int:
        """Return how many calls nobody noted the place of, where that of others was noted."""
        missing = sum(one.order is None for one in self.exchanges)
        return missing if missing < len(self.exchanges) else 0

    @property
    def num_ambiguous(self) -> int:
        """Return how many calls had a prompt of another one, if nobody noted which came first."""
        alike: dict[tuple[int, ...], list[Exchange]] = {}
        for one in self.exchanges:
            alike.setdefault(one.prompt, []).append(one)
        return sum(
            len(calls)
            for calls in alike.values()
            if len({one.reply for one in calls}) > 1 and any(one.order is None for one in calls)
        )


def _of_batch(directory: Path, batch: str) -> Iterator[Sample]:
    """Give the samples of each step that has some of a batch; of others no array is read.

    Raises:
        DataError: a file is damaged.
    """
    for place in places_of(directory):
        try:
            if any(row["eid"].startswith(f"{batch}/") for row in read_rows(place)):
                yield from read_step(place)
        except DataError as error:
            raise DataError(
                f"{place.path}: {error} Put the file back from a copy; its other steps can be read."
            ) from error


def recorded_run(place: Path, *, end_tokens: Collection[int]) -> RecordedRollout:
    """Return a try of a task.

    Args:
        place: ``RUN_DIR/batch/task/run``; without the run, the first one that was trained. A task
            may have an agent's name behind it, as ``3-judge``: all agents of the try are meant.
        end_tokens: of the model.

    Raises:
        ConfigError: nothing of it was recorded, no such agent, or not of which row it is.
        DataError: a file of samples is damaged, or what the environment answered.
    """
    directory, eid = _split(place)
    batch, task, *rest = eid.split("/")
    wanted = [batch, _task_of(task), *rest]
    once: dict[str, Sample] = {}  # where it was trained in several steps: the first
    for one in _of_batch(directory, batch):
        own = one.eid.split("/")
        if [own[0], _task_of(own[1]), *own[2:]][: len(wanted)] == wanted:
            once.setdefault(one.eid, one)
    found = list(once.values())
    if not found:
        raise ConfigError(
            f"{directory} has no sample of {eid}: only what was trained is kept. "
            f"trinity experiences {directory} lists what is there, as batch/task/run/step."
        )
    run = min(int(one.run) for one in _of_group(task, found, place=place))
    mine = sorted((one for one in found if int(one.run) == run), key=_place)
    index: dict[str, Any] = next((s.info["task_index"] for s in mine if "task_index" in s.info), {})
    if "index" not in index:
        raise ConfigError(f"{directory} does not say of which row the task {eid} is.")
    exchanges = _in_order(one for s in mine for one in _exchanges(s, frozenset(end_tokens)))
    if not exchanges:
        raise ConfigError(f"the model's own tokens of {eid} are masked: nothing can be replayed.")
    kept = next((one.environment for one in mine if one.environment is not None), None)
    return RecordedRollout(
        batch=batch,
        task=int(_task_of(task)),
        run=run,
        samples=tuple(mine),
        taskset=str(index.get("taskset_id", 0)),
        row=int(index["index"]),
        exchanges=tuple(exchanges),
        answers=RecordedAnswers(tracks=()) if kept is None else answers_of(kept, place=str(place)),
    )


def _split(place: Path) -> tuple[Path, str]:
    """Return the run directory that the path begins with, and the rest as an id."""
    for directory in place.parents:
        eid = place.relative_to(directory).as_posix()
        if (directory / "samples").is_dir() and "/" in eid:
            return directory, eid
    if (place / "samples").is_dir():
        raise ConfigError(
            f"{place} is a run directory. Name a try in it, as {place}/3/7/0 for batch, task and "
            f"run: trinity experiences {place} lists what is there, as batch/task/run/step."
        )
    raise ConfigError(
        f"{place} is in no run directory that has samples. Name a try as RUN_DIR/batch/task/run, "
        f"as in checkpoints/project/name/3/7/0."
    )


def _task_of(group: str) -> str:
    """Return the task of a group: a workflow may name one below it for each agent, as 3-judge."""
    return group.partition("-")[0]


def _of_group(group: str, samples: Sequence[Sample], *, place: Path) -> Sequence[Sample]:
    """Return the samples of an agent's group; of a task that names no agent, all."""
    if group == _task_of(group):
        return samples
    own = {one.eid: one.eid.split("/")[1] for one in samples}
    found = [one for one in samples if own[one.eid] == group]
    if not found:
        known = ", ".join(sorted(set(own.values())))
        raise ConfigError(f"{place} names the group {group}, and that try has {known}: name one.")
    return found


def _in_order(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Return the exchanges in the order of their calls.

    One that does not say its place stays where it is given, among the others in their order.
    """
    found = list(exchanges)
    told = [(one.order, one) for one in found if one.order is not None]
    ordered = (one for _, one in sorted(told, key=lambda pair: pair[0]))
    return [one if one.order is None else next(ordered) for one in found]


def _place(sample: Sample) -> tuple[int, float]:
    """Return where a sample stands in its run: by step, then by chain, the last one last."""
    _, _, _, step, *suffix = [*sample.eid.split("/"), "0"]
    chain = _CHAIN.fullmatch(suffix[0]) if suffix else None
    number = int(step) if step.isdigit() else 0
    return number, int(chain[1]) if chain else math.inf


def _exchanges(sample: Sample, end_tokens: frozenset[int]) -> Iterator[Exchange]:
    start, tokens, names = sample.prompt_length, sample.tokens.tolist(), _order_of(sample.info)
    for first, last in _replies(sample.own_mask.tolist()):
        logprobs = () if sample.logprobs is None else sample.logprobs[first:last].tolist()
        reply = tuple(tokens[start + first : start + last])
        yield Exchange(
            prompt=tuple(tokens[: start + first]),
            reply=reply,
            logprobs=tuple(logprobs),
            is_cut=reply[-1] not in end_tokens,
            order=next((order for begins, order in reversed(names) if begins <= first), None),
        )


def _order_of(info: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
    """Return ``(first token, (request, index))`` of each reply; none where info does not say it.

    >>> _order_of({"reply_names": [[0, "3-0"], [9, "12-1"]]})
    [(0, (3, 0)), (9, (12, 1))]
    >>> _order_of({"reply_names": "a workflow's own"})
    []
    """
    try:
        return [(int(first), _two_numbers(name)) for first, name in info.get(REPLY_NAMES, ())]
    except (TypeError, ValueError, AttributeError):  # an entry of that name is the workflow's own
        return []


def _two_numbers(name: str) -> tuple[int, int]:
    request, index = name.split("-")
    return int(request), int(index)


def _replies(own: list[bool]) -> Iterator[tuple[int, int]]:
    """Give where each reply begins and ends: a stretch of the model's own tokens."""
    place = 0
    for is_own, stretch in groupby(own):
        size = len(list(stretch))
        if is_own:
            yield place, place + size
        place += size
