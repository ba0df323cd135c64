"""Keep what an environment answers, so that the run can be replayed without it.

::

    workflow --step(action)--> recorded(make, task) --> environment
                                      |
                                      +--> the run's samples, as JSON
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from trinity.common.workflows.task import Task

__all__ = ["ENVIRONMENT", "Environments", "Recording", "is_same", "plain", "recorded", "restored"]

ENVIRONMENT = "recorded_environment"  # the entry of an experience's info
LIMIT = 2_000_000  # characters of a run; a longer one is not kept
_TUPLE = "__tuple__"


class Environments(Protocol):
    """Makes the environments of a run; ``Task.environments`` of a run that is kept or replayed."""

    def environment(self, make: Callable[[], Any]) -> Any:  # Any: somebody else's class
        """Return what the workflow is to use in place of what ``make`` gives."""

    def text(self) -> str:
        """Return what is to be kept, as JSON; empty: nothing."""


def recorded(make: Callable[[], Any], task: Task) -> Any:  # Any: somebody else's class
    """Return the environment that ``make`` builds, so that the run can be replayed without it.

    Its methods are called and its attributes are read as before; what they answer is kept with the
    samples of the run, in their order (``buffer.record_samples``). In a replay ``make`` is not
    called: the answers of then are given, until the workflow does something else. ``close`` is not
    kept. Attributes cannot be set. An answer that JSON cannot hold is given as it is, and the run
    is replayed with the environment itself.

    Args:
        make: builds the environment.
        task: of the run, ``self.task``.

    Example:
        ``self.env = recorded(lambda: make_env(self.task.raw_task), self.task)``
    """
    return make() if task.environments is None else task.environments.environment(make)


class Recording:
    """Notes what the environments of one run answer."""

    def __init__(self) -> None:
        self._tracks: list[dict[str, Any]] = []  # Any: json
        self._problem = ""
        self._size = 0

    def environment(self, make: Callable[[], Any]) -> Any:
        """Return the environment, listened to."""
        track: dict[str, Any] = {"seen": {}, "calls": [], "methods": []}
        self._tracks.append(track)
        try:
            return _Listened(make(), track, self)
        except BaseException as error:
            self.give_up(f"building it raised {type(error).__name__}")
            raise

    def text(self) -> str:
        """Return what they answered, or why that cannot be kept."""
        if not self._tracks:
            return ""
        if self._problem:
            return json.dumps({"problem": self._problem})
        return json.dumps({"environments": self._tracks})

    def give_up(self, why: str) -> None:
        """Keep nothing of the run but the first reason."""
        if not self._problem:
            self._problem = why
            for track in self._tracks:
                track |= {"seen": {}, "calls": [], "methods": []}

    def call(self, track: dict[str, Any], made: dict[str, Any]) -> None:
        """Note a call."""
        entry = self._plain(made, f"{made['name']}()")
        if entry is not None:
            track["calls"].append({**entry, "seen": {}})

    def read(self, track: dict[str, Any], name: str, value: list[Any]) -> None:
        """Note an attribute; ``value`` is empty where there is none of the name."""
        seen = track["calls"][-1]["seen"] if track["calls"] else track["seen"]
        entry = self._plain(value, name)
        if entry is None:
            return
        if not is_same(seen.setdefault(name, entry), entry):
            self.give_up(f"{name} changed between two calls")

    def found(self, track: dict[str, Any], method: str) -> None:
        """Note that there is a method, whether or not it is called."""
        if not self._problem and method not in track["methods"]:
            track["methods"].append(method)

    def _plain(self, value: Any, what: str) -> Any:  # Any: json; None: it cannot be kept
        if self._problem:
            return None
        try:
            entry = plain(value)
            self._size += len(json.dumps(entry))
        except (TypeError, ValueError, RecursionError) as error:
            self.give_up(f"{what} is no JSON: {error}")
            return None
        if self._size > LIMIT:
            self.give_up(f"it has more than {LIMIT:,} characters")
            return None
        return entry


class _Listened:
    """An environment whose answers are noted."""

    __slots__ = ("_env", "_recording", "_track")

    def __init__(self, env: Any, track: dict[str, Any], recording: Recording) -> None:
        self._env = env
        self._track = track
        self._recording = recording

    def __getattr__(self, name: str) -> Any:
        track, recording = self._track, self._recording
        try:
            value = getattr(self._env, name)
        except AttributeError:
            recording.read(track, name, [])
            raise
        except Exception as error:
            recording.give_up(f"reading {name} raised {type(error).__name__}")
            raise
        if name == "close":
            return value
        if not callable(value):
            recording.read(track, name, [value])
            return value
        recording.found(track, name)

        def asked(*args: Any, **kwargs: Any) -> Any:
            try:
                given = plain({"args": list(args), "kwargs": kwargs})  # before it can change them
            except (TypeError, ValueError, RecursionError) as error:
                recording.give_up(f"an argument of {name}() is no JSON: {error}")
                return value(*args, **kwargs)
            try:
                answer = value(*args, **kwargs)
            except BaseException as error:
                recording.give_up(f"{name}() raised {type(error).__name__}")
                raise
            recording.call(track, {"name": name, **restored(given), "answer": answer})
            return answer

        return asked


def plain(value: Any) -> Any:  # Any: anything; json
    """Return a copy that JSON holds, from which :func:`restored` makes an equal one.

    Raises:
        TypeError: JSON cannot hold it.
    """
    kind = type(value)
    if value is None or kind in {bool, int, float, str}:
        return value
    if isinstance(value, float):  # numpy's float64
        return float(value)
    if kind is list:
        return [plain(one) for one in value]
    if kind is tuple:
        return {_TUPLE: [plain(one) for one in value]}
    if kind is dict and _TUPLE not in value and all(type(key) is str for key in value):
        return {key: plain(one) for key, one in value.items()}
    raise TypeError(f"it holds {kind.__module__}.{kind.__qualname__}")


def is_same(one: Any, other: Any) -> bool:  # Any: json
    """Return whether two values are written the same: 1 is neither true nor 1.0, NaN is NaN."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def restored(value: Any) -> Any:  # Any: json
    """Return what :func:`plain` was given."""
    if isinstance(value, list):
        return [restored(one) for one in value]
    if isinstance(value, dict):
        if _TUPLE in value:
            return tuple(restored(one) for one in value[_TUPLE])
        return {key: restored(one) for key, one in value.items()}
    return value
