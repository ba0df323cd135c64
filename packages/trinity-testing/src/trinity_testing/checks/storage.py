"""What every storage must hold.

    write  [0 1 2 3] [4 5 6 7] [8 9]  -->  storage  -->  read 0 1 2 3 4, 5 6 7 8 9

``args`` are fields of the buffer's section (``path``, ...). A storage with the word ``length`` and
no ledger was filled before the run, so that nobody waits for its writers.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trinity.common.config import ExperienceBufferConfig
from trinity.errors import BufferClosedError
from trinity.extend import KINDS

from trinity_testing.builders import an_experience
from trinity_testing.check import Check, CheckContext, Finding, Skipped
from trinity_testing.checks.background import Background

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trinity.common.experience import Experience
    from trinity.extend.component import Component

__all__ = ["checks"]

SIZES = (4, 4, 2)  # of the batches that are written
NUM = sum(SIZES)
OWN_ORDER = "own_order"
SHORT_S, LIMIT_S = 0.05, 5.0
NUM_BATCHES, BATCH = 12, 3  # of each of two writers


def loses_nothing(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that loses what was written."""
    with _filled(component, context) as storage:
        given = set(_numbers(_read_all(storage)))
    lost = [number for number in range(NUM) if number not in given]
    return Finding(f"of {NUM} experiences, number {_listed(lost)} is lost") if lost else None


def gives_nothing_twice(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that gives an experience again and does not claim to."""
    if "gives_again" in _abilities(component):
        raise Skipped("it provides gives_again")
    with _filled(component, context) as storage:
        given = _numbers(_read_all(storage))
    twice = sorted({number for number in given if given.count(number) > 1})
    return Finding(f"number {_listed(twice)} is given more than once") if twice else None


def keeps_the_order(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that does not give first what was written first, and claims no order."""
    with _filled(component, context) as storage:
        if OWN_ORDER in _abilities(component):
            raise Skipped(f"it provides own_order: {storage.order}")
        given = list(dict.fromkeys(_numbers(_read_all(storage))))
    if given != sorted(given):
        return Finding(f"written as 0 to {NUM - 1}, read as {given}")
    return None


def keeps_every_field(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that gives back something else than was written; info may say more."""
    rows = [_row(number) for number in range(2)]
    before = [row.to_dict() for row in rows]
    with _opened(component, context) as storage:
        storage.write(rows)
        read = sorted(storage.read(2, timeout_s=LIMIT_S), key=lambda row: int(row.eid.task))
    after = [row.to_dict() for row in read]
    for one, other in zip(before, after, strict=False):
        more = other["info"].keys() - one["info"].keys()
        other["info"] = {key: value for key, value in other["info"].items() if key not in more}
        for name, value in one.items():
            if other.get(name) != value:
                return Finding(f"{name} was {value!s:.60} and is {other.get(name)!s:.60}")
    return None


def waits_no_longer_than_told(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that waits longer than told for what is missing, or loses the rest by it."""
    _waits(component)
    with _opened(component, context) as storage:
        storage.write([_row(0), _row(1)])
        reader = Background(lambda: storage.read(3, timeout_s=SHORT_S))
        ended = reader.wait(LIMIT_S)
        if not ended:
            return Finding(f"told to wait {SHORT_S} s, it waits longer than {LIMIT_S:.0f} s")
        if not isinstance(reader.error, TimeoutError):
            told = f"it raised {reader.error!r}" if reader.error else f"it gave {reader.value!r}"
            return Finding(f"2 of 3 experiences were there, and {told:.80}, not a TimeoutError")
        if storage.available() != 2 or sorted(_numbers(storage.read(2, timeout_s=SHORT_S))) != [
            0,
            1,
        ]:
            return Finding("after a read that came too early, the 2 that were there are gone")
    return None


def wakes_whoever_waits(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage whose reader does not notice that something is written."""
    _waits(component)
    with _opened(component, context) as storage:
        reader = Background(lambda: storage.read(2, timeout_s=LIMIT_S))
        time.sleep(SHORT_S)
        storage.write([_row(0), _row(1)])
        if not reader.wait(LIMIT_S / 2) or reader.error:
            return Finding(f"a reader that waits for 2 sees them not in {LIMIT_S / 2:.1f} s")
    return None


def ends_when_closed(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that goes on after its end, or keeps readers waiting after it."""
    with _opened(component, context) as storage:
        storage.write([_row(0), _row(1)])
        reader = None
        if not _was_filled(component):
            reader = Background(lambda: storage.read(3, timeout_s=LIMIT_S))
            time.sleep(SHORT_S)
        storage.close()
        if reader is not None and not reader.wait(LIMIT_S / 2):
            return Finding("close() does not wake a reader that waits")
        given = reader.value or [] if reader else storage.read(3, timeout_s=SHORT_S)
        if sorted(_numbers(given)) != [0, 1]:
            return Finding(f"of 2 experiences, {len(given)} could be read after close()")
        return _is_over(storage)


def _is_over(storage: Any) -> Finding | None:
    try:
        storage.read(1, timeout_s=SHORT_S)
    except StopIteration:
        pass
    except TimeoutError:
        return Finding("closed and empty, a read times out and raises no StopIteration")
    else:
        return Finding("closed and empty, it gives an experience")
    try:
        storage.write([_row(3)])
    except BufferClosedError:
        return None
    return Finding("it is closed, and it can be written to")


def state_round_trips(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that a checkpoint cannot bring back: all that was not read, once."""
    can = _abilities(component)
    if not can & {"waiting", "state"}:
        raise Skipped("it has neither waiting nor a state, so a run with it cannot be resumed")
    with TemporaryDirectory() as folder:
        first = _made(component, context, folder)
        first.write([_row(number) for number in range(5)])
        read = _numbers(first.read(2, timeout_s=LIMIT_S))
        waiting = list(first.waiting()) if "waiting" in can else []
        if "waiting" in can and first.available() != 3:
            return Finding(f"waiting() takes: 3 were left, and {first.available()} are after it")
        state = first.state_dict() if "state" in can else {}
        try:
            state = json.loads(json.dumps(state))
        except TypeError as error:
            return Finding(f"json cannot hold its state_dict: {error}")
        first.close()
        second = _made(component, context, folder)
        if "state" in can:
            second.load_state_dict(state)
        if waiting:
            second.write(waiting)
        given = _numbers(_read_all(second))
        second.close()
    if _in_order(component, given) != [number for number in range(5) if number not in read]:
        return Finding(f"after 2 of 5 were read, a resumed one gives {given}")
    return None


def takes_back(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that claims to take back what was read last, and does not in its place."""
    if "put_back" not in _abilities(component):
        raise Skipped("it does not provide put_back")
    with _filled(component, context) as storage:
        taken = storage.read(3, timeout_s=LIMIT_S)
        storage.put_back(taken)
        given = _numbers(_read_all(storage))
    if _in_order(component, given) != list(range(NUM)):
        numbers = ", ".join(map(str, _numbers(taken)))
        return Finding(f"{numbers} were put back, and then it gives {given}")
    return None


def serves_two_writers(component: Component, context: CheckContext) -> Finding | None:
    """Find a storage that mixes two writers up."""
    with _opened(component, context) as storage:
        storage.write([_row(1000 + place) for place in range(BATCH)])  # a file is there then
        writers = [Background(lambda n=n: _write_many(storage, start=n)) for n in (0, 500)]
        wanted = (2 * NUM_BATCHES + 1) * BATCH
        given: list[Experience] = []
        limit = time.monotonic() + 2 * LIMIT_S
        while len(given) < wanted and time.monotonic() < limit:
            try:
                given += storage.read(BATCH, timeout_s=SHORT_S)
            except (TimeoutError, StopIteration):
                time.sleep(SHORT_S / 10)
        errors = [writer.error for writer in writers if not writer.wait(LIMIT_S) or writer.error]
    if errors:
        return Finding(f"one of two writers failed: {errors[0]!r}")
    numbers = _numbers(given)
    if len(set(numbers)) != wanted or len(numbers) != wanted:
        return Finding(f"two wrote {wanted} experiences, {len(set(numbers))} of them came")
    return None


def _write_many(storage: Any, *, start: int) -> None:
    for number in range(start, start + NUM_BATCHES * BATCH, BATCH):
        storage.write([_row(number + place) for place in range(BATCH)])


def _abilities(component: Component) -> frozenset[str]:
    return KINDS["storage"].abilities_by_class(component)


def _was_filled(component: Component) -> bool:
    """Return whether it is filled before the run; a ledger may be filled during one as well."""
    return "length" in (can := _abilities(component)) and "ledger" not in can


def _waits(component: Component) -> None:
    if _was_filled(component):
        raise Skipped("it provides length: it is filled before the run, and nobody waits")


def _made(component: Component, context: CheckContext, folder: str) -> Any:
    path = Path(folder) / "experiences.jsonl"
    arguments = {"name": "conformance", "path": str(path), **context.arguments(component)}
    config = ExperienceBufferConfig(**arguments)
    return KINDS["storage"].made(
        context.load(component),
        {},
        config=config,
        path=config.path,
        chat_format=None,
        total_epochs=1,
    )


@contextmanager
def _opened(component: Component, context: CheckContext) -> Iterator[Any]:
    with TemporaryDirectory() as folder:
        storage = _made(component, context, folder)
        try:
            yield storage
        finally:
            storage.close()


@contextmanager
def _filled(component: Component, context: CheckContext) -> Iterator[Any]:
    with _opened(component, context) as storage:
        start = 0
        for size in SIZES:
            storage.write([_row(number) for number in range(start, start + size)])
            start += size
        yield storage


def _read_all(storage: Any) -> list[Experience]:
    """Return what can be read, five at a time; a storage without an end gives three times all."""
    given: list[Experience] = []
    while len(given) < 3 * NUM and (left := storage.available()) > 0:
        try:
            given += storage.read(min(5, left), timeout_s=SHORT_S)
        except (StopIteration, TimeoutError):
            break
    return given


def _row(number: int) -> Experience:
    return an_experience(
        task=number,
        response=(3, 4, 5 + number % 3),
        reward=number / 4,
        action_mask=[True, False, True],
        info={"model_version": 1, "note": f"row {number}"},
    )


def _numbers(rows: Sequence[Experience]) -> list[int]:
    return [int(row.eid.task) for row in rows]


def _in_order(component: Component, given: list[int]) -> list[int]:
    """Return numbers as they came, or sorted where the storage has an order of its own."""
    return sorted(given) if OWN_ORDER in _abilities(component) else given


def _listed(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers[:3])) + (" ..." if len(numbers) > 3 else "")


_KINDS = frozenset({"storage"})
checks = (
    Check(
        id="storage.nothing_lost",
        function=loses_nothing,
        remedy="Keep what was written until it is read; cut no batch at its edges.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.nothing_twice",
        function=gives_nothing_twice,
        remedy="Take out what you give; if reuse is meant, provide gives_again.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.order",
        function=keeps_the_order,
        remedy="Give the oldest first: with style fixed, they are the batch that is due; if "
        "another order is meant, provide own_order.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.fields",
        function=keeps_every_field,
        remedy="Store with Experience.to_dict() and from_dict(), or the objects themselves.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.timeout",
        function=waits_no_longer_than_told,
        remedy="Raise TimeoutError after timeout_s, and take nothing out before all are there.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.wakes",
        function=wakes_whoever_waits,
        remedy="Notify the readers in write(), with a threading.Condition.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.close",
        function=ends_when_closed,
        remedy="In close(), wake all; then give what is left, then raise StopIteration, and "
        "BufferClosedError to writers.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.state",
        function=state_round_trips,
        remedy="Return all that was not read from waiting(), without taking it, or keep it by "
        "yourself and your place in state_dict().",
        kinds=_KINDS,
    ),
    Check(
        id="storage.put_back",
        function=takes_back,
        remedy="Put it before all that waits, or do not provide put_back: the runtime keeps it.",
        kinds=_KINDS,
    ),
    Check(
        id="storage.two_writers",
        function=serves_two_writers,
        remedy="Hold one lock while you write or read.",
        kinds=_KINDS,
    ),
)
