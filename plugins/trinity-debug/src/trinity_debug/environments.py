"""The environments of a replayed run: they answer what was recorded, and are never built."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trinity.common.workflows.recorded_env import is_same, plain, restored
from trinity.errors import DataError, EnvError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedAnswers:
    """What the environments of a run answered, in the order in which they were made."""

    tracks: tuple[dict[str, Any], ...]  # Any: json; seen: attributes before the first of the calls
    problem: str = ""  # why there is none

    @property
    def num_calls(self) -> int:
        """Return how often they were asked."""
        return sum(len(track["calls"]) for track in self.tracks)


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """Where the workflow asks the environment something else."""

    step: int  # from 1
    of: int  # steps that were recorded
    was: str  # "": no step was recorded
    now: str  # "": it was not asked


def answers_of(text: str, *, place: str) -> RecordedAnswers:
    """Return what was kept of a run.

    Args:
        text: as the samples hold it.
        place: of the run, for who reads an error.

    Raises:
        DataError: it is damaged.
    """
    try:
        content = json.loads(text)
        if "problem" in content:
            return RecordedAnswers(tracks=(), problem=str(content["problem"]))
        tracks = tuple(_track(one) for one in content["environments"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(
            f"what the environment answered in {place} is damaged: {type(error).__name__}: {error}."
            f" Replay another try: trinity experiences lists them."
        ) from error
    return RecordedAnswers(tracks=tracks)


class RepeatedEnvironments:
    """Gives the recorded answers to the recorded actions; another action ends the run.

    Args:
        answers: of the recorded run.
        is_over: whether the run differs already elsewhere, so that what follows says nothing.
    """

    def __init__(self, answers: RecordedAnswers, *, is_over: Callable[[], bool]) -> None:
        self._answers = answers
        self._is_over = is_over
        self._made: list[_Repeated] = []
        self._departure: Departure | None = None

    def environment(self, make: Callable[[], Any]) -> Any:  # Any: as the Protocol says
        """Return the next environment of the run; ``make`` is called only if none was recorded."""
        tracks = self._answers.tracks
        if not tracks:
            return make()
        place = len(self._made)
        if place == len(tracks):
            total = len(tracks)
            raise self.depart(
                Departure(step=total + 1, of=total, was="", now="another environment is made")
            )
        made = _Repeated(tracks[place], self)
        self._made.append(made)
        return made

    def text(self) -> str:
        """Keep nothing: a replay is not recorded."""
        return ""

    def depart(self, departure: Departure) -> EnvError:
        """Note where the run differs first; return what ends it."""
        if self._departure is None and not self._is_over():
            self._departure = departure
        return EnvError(f"step {departure.step} of the environment differs from the recorded run.")

    @property
    def departure(self) -> Departure | None:
        """Return where the run differed; None: nowhere."""
        return self._departure

    @property
    def left(self) -> Departure | None:
        """Return the first step that was recorded and is not made; None: all were."""
        for place, track in enumerate(self._answers.tracks):
            calls = track["calls"]
            done = self._made[place]._num_made if place < len(self._made) else 0
            if done < len(calls):
                was = _shown(calls[done])
                return Departure(step=done + 1, of=len(calls), was=was, now="")
        return None


class _Repeated:
    """One environment as it was recorded."""

    __slots__ = ("_num_made", "_owner", "_track")

    def __init__(self, track: dict[str, Any], owner: RepeatedEnvironments) -> None:
        self._track = track
        self._owner = owner
        self._num_made = 0

    def __getattr__(self, name: str) -> Any:  # Any: what the environment's was
        calls = self._track["calls"]
        if name == "close":
            return _nothing
        seen = calls[self._num_made - 1]["seen"] if self._num_made else self._track["seen"]
        if name in seen:
            if not seen[name]:
                raise AttributeError(f"the recorded environment had no attribute {name!r}")
            return restored(seen[name][0])
        if name in self._track["methods"]:
            return lambda *args, **kwargs: self._asked(name, args, kwargs)
        if name.startswith("__"):  # Python asks for some by itself
            raise AttributeError(name)
        raise self._departs(now=f"{name} is asked for")

    def _asked(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls = self._track["calls"]
        try:
            now = {"name": name, "args": plain(list(args)), "kwargs": plain(kwargs)}
        except (TypeError, RecursionError) as error:
            raise self._departs(now=f"{name}(...), whose argument is no JSON: {error}") from error
        if self._num_made == len(calls):
            raise self._departs(now=_shown(now))
        recorded = calls[self._num_made]
        if not is_same({part: recorded[part] for part in now}, now):
            raise self._departs(now=_shown(now))
        self._num_made += 1
        return restored(recorded["answer"])

    def _departs(self, *, now: str) -> EnvError:
        calls = self._track["calls"]
        was = _shown(calls[self._num_made]) if self._num_made < len(calls) else ""
        step = self._num_made + 1
        return self._owner.depart(Departure(step=step, of=len(calls), was=was, now=now))


def _nothing(*_: object, **__: object) -> None:
    """Close what was never open."""


def _track(given: dict[str, Any]) -> dict[str, Any]:
    """Return a track whose parts are all there."""
    calls = [_call(one) for one in given["calls"]]
    methods = {str(one) for one in given.get("methods", [])} | {call["name"] for call in calls}
    return {"seen": _seen(given), "calls": calls, "methods": methods}


def _call(given: dict[str, Any]) -> dict[str, Any]:
    parts = {"name": str(given["name"]), "args": list(given["args"]), "answer": given["answer"]}
    return {**parts, "kwargs": dict(given["kwargs"]), "seen": _seen(given)}


def _seen(given: dict[str, Any]) -> dict[str, list[Any]]:
    return {name: list(value) for name, value in dict(given["seen"]).items()}


def _shown(call: dict[str, Any]) -> str:
    """Return a call as it is written."""
    args = [repr(restored(one)) for one in call["args"]]
    named = [f"{name}={restored(one)!r}" for name, one in call["kwargs"].items()]
    return f"{call['name']}({', '.join([*args, *named])})"
