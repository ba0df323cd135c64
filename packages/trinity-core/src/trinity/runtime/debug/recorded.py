"""The calls of a run that was trained, as its samples hold them.

tokens   p p p p | r r e | t t t | r r e      p prompt, r reply, e end, t what a tool said
own mask           1 1 1   0 0 0   1 1 1      two calls: (p, rre) and (p rre ttt, rre)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from trinity.errors import ConfigError
from trinity.runtime.record.sample_files import places_of
from trinity.runtime.record.sample_rows import samples_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from trinity.runtime.record.sample_format import Sample

__all__ = ["Exchange", "Recorded", "recorded_run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One call of the model."""

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    logprobs: tuple[float, ...]  # (): not known
    is_cut: bool  # the reply does not end with an end token


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """One try of a task."""

    batch: str
    task: int
    run: int
    reward: float | None
    taskset: str  # as info["task_index"] says
    row: int
    exchanges: tuple[Exchange, ...]


def recorded_run(place: Path, *, end_tokens: Collection[int]) -> Recorded:
    """Return a try of a task.

    Args:
        place: ``RUN_DIR/batch/task/run``; without the run, the first one that was trained.
        end_tokens: of the model.

    Raises:
        ConfigError: nothing of it was recorded, or not of which row it is.
        DataError: a file of samples is damaged.
    """
    directory, eid = _split(place)
    found = [one for step in samples_of(places_of(directory), task=eid) for one in step]
    if not found:
        raise ConfigError(
            f"{directory} has no sample of {eid}: only what was trained is kept. "
            f"trinity experiences {directory} lists what is there, as batch/task/run/step."
        )
    run = min(int(one.run) for one in found)
    mine = sorted((one for one in found if int(one.run) == run), key=_place)
    index: dict[str, Any] = next((s.info["task_index"] for s in mine if "task_index" in s.info), {})
    if "index" not in index:
        raise ConfigError(f"{directory} does not say of which row the task {eid} is.")
    batch, task = mine[0].task.rsplit("/", 1)
    return Recorded(
        batch=batch,
        task=int(task),
        run=run,
        reward=mine[-1].reward,
        taskset=str(index.get("taskset_id", 0)),
        row=int(index["index"]),
        exchanges=tuple(
            exchange for one in mine for exchange in _exchanges(one, frozenset(end_tokens))
        ),
    )


def _split(place: Path) -> tuple[Path, str]:
    """Return the run directory that the path begins with, and the rest as an id."""
    for directory in place.parents:
        if (directory / "samples").is_dir():
            return directory, place.relative_to(directory).as_posix()
    raise ConfigError(
        f"{place} is in no run directory that has samples. Name a try as RUN_DIR/batch/task/run, "
        f"as in checkpoints/project/name/3/7/0."
    )


def _place(sample: Sample) -> tuple[int, int]:
    """Return where a sample stands among those of its run: the shorter chain was said first."""
    step = sample.eid.split("/")[3:4]
    return (int(step[0]) if step and step[0].isdigit() else 0, len(sample.tokens))


def _exchanges(sample: Sample, end_tokens: frozenset[int]) -> Iterator[Exchange]:
    start, tokens = sample.prompt_length, sample.tokens.tolist()
    for first, last in _replies(sample.own_mask.tolist()):
        logprobs = () if sample.logprobs is None else sample.logprobs[first:last].tolist()
        reply = tuple(tokens[start + first : start + last])
        yield Exchange(
            prompt=tuple(tokens[: start + first]),
            reply=reply,
            logprobs=tuple(logprobs),
            is_cut=reply[-1] not in end_tokens,
        )


def _replies(own: list[bool]) -> Iterator[tuple[int, int]]:
    """Give where each reply begins and ends: a stretch of the model's own tokens."""
    place = 0
    for is_own, stretch in groupby(own):
        size = len(list(stretch))
        if is_own:
            yield place, place + size
        place += size
